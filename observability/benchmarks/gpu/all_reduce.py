"""The program of a rank that measures NCCL's all-reduce: `python -m observability.benchmarks.gpu.all_reduce`, under torchrun."""

from __future__ import annotations

import torch

from training.conformance.all_reduce import measure
from training.launch.task import RankPlace
from training.process_group import process_group

_TIMEOUT_SECONDS = 300.0


def main(*, gpu: bool, size_bytes: int | None = None) -> None:
    """Measure; rank 0 prints the facts as JSON."""
    place = RankPlace.from_environment()
    device = torch.device("cuda", place.local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    with process_group(place, gpu=gpu, timeout_seconds=_TIMEOUT_SECONDS):
        facts = measure(device, size_bytes=size_bytes)
    if place.rank == 0:
        print(facts.model_dump_json())


if __name__ == "__main__":
    main(gpu=torch.cuda.is_available())
