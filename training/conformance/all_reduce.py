"""Measures an all-reduce of the default process group."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from training.conformance.facts import AllReduceFacts

GPU_BYTES = 1 << 30
"""Where the bandwidth of large messages is reached on every instance type; a gigabyte per rank fits in every GPU."""

CPU_BYTES = 16 << 20
"""Enough to be slower than the latency of gloo; more would keep a CPU node busy for nothing."""

_WARM_UPS, _ROUNDS = 3, 10


def bus_factor(ranks: int) -> float:
    """Factor from algorithm to bus bandwidth of an all-reduce: 2 (n - 1) / n (nccl-tests, doc/PERFORMANCE.md)."""
    return 2 * (ranks - 1) / ranks


def measure(device: torch.device, *, size_bytes: int | None = None) -> AllReduceFacts:
    """All-reduce a buffer of float32 ten times; collective.

    Args:
        device: of the buffer.
        size_bytes: of the buffer; None takes the size for the device.
    """
    is_gpu = device.type == "cuda"
    size = size_bytes or (GPU_BYTES if is_gpu else CPU_BYTES)
    ranks = dist.get_world_size()
    buffer = torch.empty(size // 4, dtype=torch.float32, device=device)
    times = []
    for _ in range(_WARM_UPS + _ROUNDS):
        buffer.fill_(dist.get_rank() + 1)
        dist.barrier()
        _finish(device)
        start = time.perf_counter()
        dist.all_reduce(buffer)
        _finish(device)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[_WARM_UPS:])
    right = bool((buffer == ranks * (ranks + 1) / 2).all())
    slowest = torch.tensor([seconds, float(not right)], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    seconds = float(slowest[0])
    return AllReduceFacts(
        backend="nccl" if is_gpu else "gloo",
        size_bytes=size,
        seconds=seconds,
        bus_bytes_per_second=size / seconds * bus_factor(ranks),
        is_correct=not bool(slowest[1]),
    )


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
