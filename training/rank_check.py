"""The check of a rank's device and host before the ranks connect: a sick one keeps none of its peers waiting in a collective.

A rank that fails it ends with an error that names its node and device. The driver counts it as a hardware error, which has many restarts
(`training.recovery`): another attempt may get another node or device, or the memory that an earlier process has not returned yet.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, ProcessGroupGloo
from torch.distributed import ProcessGroup

from infra.spec.errors import reason_of
from training.errors import DeviceError
from training.preflight import available_memory

_SIDE: Final = 64
_VALUES: Final = 8
"""Entries are integers below this, so every product of two matrices of this size is exact in fp32 and in TF32 (10 bits of mantissa, sums in
fp32)."""

_GPU_SECONDS: Final = 60.0
"""Until a GPU has failed: CUDA takes seconds to start on a node with eight of them."""

_LEAST_GPU_BYTES: Final = 2**30
_LARGEST_SHARE: Final = 0.9
"""Of a GPU's memory that has to be free at most: CUDA's own part of this process is some hundred MB."""

_LEAST_HOST_BYTES: Final = 256 * 2**20
"""What a rank needs at the least, beside what it has already imported."""


def check_rank(device: torch.device, *, memory_fraction: float | None, connects: bool) -> None:
    """Check that the device computes, that memory is free, and that a collective within this rank works.

    Args:
        device: of the rank.
        memory_fraction: share of the GPU's memory that the rank may use; None if that is not limited.
        connects: the rank will join others.

    Raises:
        DeviceError: one of them failed; with the node, the device and what failed.
    """
    checks: dict[str, Callable[[], str]] = {"memory of the host": _check_host_memory}
    if device.type == "cuda":
        checks["GPU"] = lambda: _within(_GPU_SECONDS, lambda: _check_gpu(device, memory_fraction, connects=connects))
    else:
        checks["CPU"] = lambda: _check_product(device)
        if connects:
            checks["loopback all-reduce"] = lambda: _check_all_reduce(device, _gloo())
    for what, check in checks.items():
        try:
            problem = check()
        except (RuntimeError, OSError, AssertionError) as error:  # torch without CUDA asserts
            problem = f"{type(error).__name__}: {reason_of(error)}"
        if problem:
            named = f"{what} {device.index}" if what == "GPU" else what
            raise DeviceError(
                f"node {socket.gethostname()}, {named}: {problem}",
                remedy="take the node out of service and look for its errors (dmesg; nvidia-smi -q for ECC errors and XIDs), or free its "
                "memory; then resume the run",
            )


def _check_host_memory() -> str:
    free = available_memory()
    if free >= _LEAST_HOST_BYTES:
        return ""
    return f"{free / 2**20:.0f} MiB are free, and a rank needs {_LEAST_HOST_BYTES / 2**20:.0f} MiB at the least"


def _check_gpu(device: torch.device, memory_fraction: float | None, *, connects: bool) -> str:
    free, total = torch.cuda.mem_get_info(device)
    needed = _LEAST_GPU_BYTES if memory_fraction is None else min(memory_fraction, _LARGEST_SHARE) * total
    if free < needed:
        setting = "" if memory_fraction is None else f" (compute.memory_fraction={memory_fraction:g})"
        return (
            f"{free / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free, and the rank needs {needed / 2**30:.1f} GiB{setting}: another "
            "process uses it (nvidia-smi)"
        )
    return _check_product(device) or (_check_all_reduce(device, _nccl(device)) if connects else "")


def _check_product(device: torch.device) -> str:
    """The product of two matrices whose result is known: entry (i, j) is `_SIDE` x (i mod 8) x (j mod 8)."""
    values = torch.arange(_SIDE) % _VALUES
    row = values.float().to(device)
    product = row[:, None].expand(_SIDE, _SIDE) @ row[None].expand(_SIDE, _SIDE)
    wrong = int((product.cpu() != _SIDE * torch.outer(values, values)).sum())
    return f"{wrong} of {_SIDE**2} entries of a product of matrices are wrong" if wrong else ""


def _check_all_reduce(device: torch.device, group: ProcessGroup) -> str:
    tensor = torch.arange(_VALUES, device=device, dtype=torch.float32)
    group.allreduce([tensor]).wait()
    return "" if tensor.tolist() == list(range(_VALUES)) else f"an all-reduce of one rank returned {tensor.tolist()}"


def _gloo() -> ProcessGroup:
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001 - torch.distributed makes them so, too
    options._devices = [ProcessGroupGloo.create_device(interface="lo")]  # noqa: SLF001
    options._timeout = timedelta(seconds=_GPU_SECONDS)  # noqa: SLF001
    return ProcessGroupGloo(HashStore(), 0, 1, options)  # type: ignore[return-value] # the stubs do not say that it is one


def _nccl(device: torch.device) -> ProcessGroup:
    torch.cuda.set_device(device)
    return dist.ProcessGroupNCCL(HashStore(), 0, 1, dist.ProcessGroupNCCL.Options())  # type: ignore[return-value] # the same


def _within(seconds: float, check: Callable[[], str]) -> str:
    """The result of a check; a problem if it does not answer. Its thread is then left behind: nothing ends a call of a hung driver."""
    answers: list[str] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(check())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="rank-check", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return answers[0] if answers else f"no answer within {seconds:g} s"
