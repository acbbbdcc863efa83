"""The check before the ranks connect, with real faults: a device that does not exist, no memory, no file descriptors."""

from __future__ import annotations

import os
import resource
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.runs import ALONE, small_settings
from training import failures, rank_check
from training.errors import DeviceError
from training.launch.task import RankTask, WorkersFailedError
from training.rank_check import check_rank
from training.recovery.causes import Cause
from training.worker import run_rank

CPU = torch.device("cpu")
NO_GPU = 99


def test_a_healthy_rank_passes() -> None:
    for connects in (True, False):
        check_rank(CPU, memory_fraction=None, connects=connects)


def test_a_host_without_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_check, "_LEAST_HOST_BYTES", 2**60)
    with pytest.raises(DeviceError, match=rf"^node {socket.gethostname()}, memory of the host: \d+ MiB are free"):
        check_rank(CPU, memory_fraction=None, connects=False)


def test_a_rank_that_cannot_open_a_connection_fails_the_all_reduce() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    held = [os.dup(0) for _ in range(highest)]  # every number below the limit but two, to read files with
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 3, before[1]))
        with pytest.raises(DeviceError, match="loopback all-reduce: "):
            rank_check.check_rank(CPU, memory_fraction=None, connects=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for number in held:
            os.close(number)


def test_a_device_that_computes_wrong_results_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def one_bit_is_wrong(left: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = right(left, other)
        product[3, 5] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", one_bit_is_wrong)
    with pytest.raises(DeviceError, match="CPU: 1 of 4096 entries of a product of matrices are wrong"):
        check_rank(CPU, memory_fraction=None, connects=False)


def test_a_device_that_does_not_answer_fails_at_its_deadline() -> None:
    hung = threading.Event()
    assert rank_check._within(0.05, lambda: str(hung.wait())) == "no answer within 0.05 s"
    hung.set()


def test_a_rank_without_its_gpu_is_a_hardware_error_that_names_node_and_device(tmp_path: Path) -> None:
    settings = small_settings(scale={"gpu": True})
    with pytest.raises(DeviceError):
        run_rank(RankTask(settings=settings, run_directory=tmp_path, attempt=0), replace(ALONE, local_rank=NO_GPU))
    found = failures.cause(tmp_path, attempt=0, ended=WorkersFailedError("status 1"), scale=settings.scale)
    assert found.cause is Cause.HARDWARE
    assert found.headline.startswith(f"rank 0 failed: DeviceError: node {socket.gethostname()}, GPU {NO_GPU}: ")
    assert "take the node out of service" in found.remedy
