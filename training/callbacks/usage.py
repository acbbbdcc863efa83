"""Reports what the run makes of its devices: the FLOPs of a sample, once, and what every rank measures of itself, every few seconds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from observability.runlog import Emit, FlopsCounted, Notice, RanksMeasured
from training.callbacks.callback import Callback
from training.flops import FlopCount
from training.loop import Loop, StepRecord
from training.step_reducer import RankUsage, StepSums

REPORT_SECONDS = 5.0
"""Time of steps between two reports of the ranks."""


class Usage(Callback):
    """Emits `FlopsCounted` and `RanksMeasured`. `emit` is a no-op on ranks other than 0."""

    def __init__(self, emit: Emit, *, flops: FlopCount | None, device: torch.device, peak: float) -> None:
        """Args: `flops` of the first micro-batch, None if they are not counted; `peak` FLOP/s of all ranks, 0 if unknown."""
        self._emit = emit
        self._flops = flops
        self._device = device
        self._peak = peak
        self._communication: list[float] = []
        self._seconds = REPORT_SECONDS

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """Report the FLOPs after the first window, and the ranks if the last report is old."""
        assert loop.window is not None, "this is its hook"
        if self._flops is not None:
            self._report_flops(self._flops)
            self._flops = None
        ranks = loop.window.ranks
        own = [rank.communication_seconds for rank in ranks]
        self._communication = list(map(sum, zip(self._communication or [0.0] * len(ranks), own, strict=True)))
        self._seconds += loop.window.seconds
        if self._seconds >= REPORT_SECONDS:
            self._report_ranks(ranks, step=steps[-1].step)

    def on_train_end(self, loop: Loop) -> None:
        """Report the last steps."""
        if self._seconds and loop.window is not None:
            self._report_ranks(loop.window.ranks, step=loop.progress.step)

    def _report_flops(self, flops: FlopCount) -> None:
        if flops.per_sample is None:
            self._emit(
                Notice(level="warning", message=f"the FLOPs of a step are not known, nor is MFU: {flops.problem}")
            )
            return
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "CPU"
        self._emit(FlopsCounted(per_sample=flops.per_sample, device=name, peak=self._peak))

    def _report_ranks(self, ranks: Sequence[RankUsage], *, step: int) -> None:
        gpus = [rank.gpu for rank in ranks if rank.gpu is not None]
        self._emit(
            RanksMeasured(
                step=step,
                communication_seconds=self._communication,
                gpu_utilization=[gpu.utilization for gpu in gpus],
                gpu_allocated_bytes=[gpu.allocated_bytes for gpu in gpus],
                gpu_reserved_bytes=[gpu.reserved_bytes for gpu in gpus],
            )
        )
        self._communication = []
        self._seconds = 0.0
