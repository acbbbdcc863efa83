"""The program of every rank of the fabric part: `python -m training.conformance fabric`, under torchrun."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from training.conformance import shared_file, transport
from training.conformance.all_reduce import measure
from training.conformance.facts import FABRIC_FILE, FabricFacts, RankFacts
from training.device import FAKE_GPUS
from training.launch.task import RankPlace
from training.process_group import process_group

_SHARED_FILE = "shared.bin"
_TIMEOUT_SECONDS = 300.0


def run(folder: Path, *, gpus: bool, size_bytes: int | None = None) -> None:
    """Meet the other ranks, and let rank 0 write what they found to `FABRIC_FILE`; collective.

    Args:
        folder: on the file system that all ranks share.
        gpus: whether the job has a GPU for each rank; one that does not exist is replaced by the CPU.
        size_bytes: of the all-reduce's buffer; None takes the size for the device.
    """
    place = RankPlace.from_environment()
    is_gpu = gpus and FAKE_GPUS not in os.environ
    device = torch.device("cuda", place.local_rank) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
    log = _log_of_nccl()
    with process_group(place, gpu=is_gpu, timeout_seconds=_TIMEOUT_SECONDS):
        before = transport.sent_bytes()
        all_reduce = measure(device, size_bytes=size_bytes)
        after = transport.sent_bytes()
        shared = folder / _SHARED_FILE
        written = [shared_file.write(shared) if place.rank == 0 else ""]
        dist.broadcast_object_list(written, device=device)
        mine = RankFacts(
            rank=place.rank,
            host=socket.gethostname(),
            device=torch.cuda.get_device_name(device) if is_gpu else "cpu",
            driver=_driver() if is_gpu else "",
            cuda=torch.version.cuda or "",
            networks=transport.networks_in(log.read_text(errors="replace").splitlines()),
            efa_bytes=None if before is None or after is None else after - before,
            read_sha256=shared_file.read(shared),
        )
        ranks: list[RankFacts | None] = [None] * place.world
        dist.all_gather_object(ranks, mine)
    log.unlink()
    if place.rank == 0:
        facts = FabricFacts(
            ranks=tuple(one for one in ranks if one is not None), all_reduce=all_reduce, written_sha256=written[0]
        )
        shared.unlink()
        (folder / FABRIC_FILE).write_text(json.dumps(facts.model_dump(mode="json")), encoding="utf-8")


def _log_of_nccl() -> Path:
    """A file that NCCL writes its log to: which network it chooses is in there only. NCCL reads the variables at its start."""
    handle, path = tempfile.mkstemp(prefix="nccl-", suffix=".log")
    os.close(handle)
    os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": path})
    return Path(path)


def _driver() -> str:
    """Version of the NVIDIA driver, as NVML reports it; empty if it does not."""
    import pynvml  # noqa: PLC0415 - only where there is a driver

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""
