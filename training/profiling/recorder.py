"""The PyTorch profiler over a window of steps of one rank, and on a GPU a snapshot of its memory."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_HISTORY = 100_000
"""Allocations that a memory snapshot keeps: some tens of megabytes."""


class Recorder:
    """Records one window: `prepare`, `start`, `stop`, in this order."""

    def __init__(self, device: torch.device, *, memory: bool) -> None:
        """Args: `memory` records allocations too; only on a GPU."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # or Kineto reports on a machine without a GPU that it has none
        self._on_gpu = device.type == "cuda"
        self._memory = memory and self._on_gpu
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        self._profiler = profile(activities=activities)

    def prepare(self) -> None:
        """Load what the profiler needs; distorts the step in which it is called."""
        self._profiler.prepare_trace()
        if self._memory:
            torch.cuda.memory._record_memory_history(max_entries=_HISTORY)  # noqa: SLF001 - the documented name

    def start(self) -> None:
        """Record from now on."""
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self._profiler.start_trace()

    def stop(self) -> int:
        """Record no more; returns the most bytes that tensors took on the GPU meanwhile, 0 on a CPU."""
        if self._on_gpu:
            torch.cuda.synchronize()
        self._profiler.stop_trace()
        return torch.cuda.max_memory_allocated() if self._on_gpu else 0

    def operators(self) -> list[str]:
        """Names of the operators of the window, one for each call, e.g. `aten::mm`."""
        return [event.name for event in self._profiler.events() or ()]  # type: ignore[no-untyped-call]

    def write(self, trace: Path, memory: Path) -> None:
        """Write the trace, and the memory snapshot if it was asked for.

        Raises:
            OSError: the disk is full, or the folder is gone.
        """
        if self._memory:
            torch.cuda.memory._dump_snapshot(str(memory))  # type: ignore[no-untyped-call]  # noqa: SLF001 - the documented name
            torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001 - the documented name
        partial = trace.with_name(f".partial-{trace.name}")
        self._profiler.export_chrome_trace(str(partial))
        partial.replace(trace)
