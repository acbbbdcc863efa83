"""Reports, once, which kernels have computed the attention of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from observability.runlog import Emit, Notice
from training.attention import kernels_among
from training.callbacks.callback import Callback
from training.callbacks.profiling import Profiling
from training.data.types import Batch
from training.loop import Loop
from training.step import StepResult

if TYPE_CHECKING:
    from training.profiling.recorder import Recorder


class AttentionReport(Callback):
    """Records the operators of one step, the first that is not profiled. One rank is enough: all compute the same."""

    def __init__(self, emit: Emit, *, wanted: str, profiling: Profiling) -> None:
        """Args: `wanted` is `compute.attention`; `profiling` stands before this callback in the session's list."""
        self._emit = emit
        self._wanted = wanted
        self._profiling = profiling
        self._recorder: Recorder | None = None
        self._is_done = False

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """Start to record."""
        del loop, micro_batches
        if self._is_done or self._profiling.is_active:
            return
        # Imported here, because it costs a run without it tens of milliseconds.
        from training.profiling.recorder import Recorder  # noqa: PLC0415

        self._recorder = Recorder(torch.device("cpu"), memory=False)  # also of a GPU: operators are called on the host
        self._recorder.prepare()
        self._recorder.start()

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Stop, and report."""
        del micro_batches, result
        if self._recorder is None:
            return
        recorder, self._recorder, self._is_done = self._recorder, None, True
        recorder.stop()
        found = kernels_among(recorder.operators())
        step, kernels = loop.progress.step, " and ".join(found)
        if not found:
            self._warn(
                f"compute.attention={self._wanted} has no effect: step {step} has no scaled_dot_product_attention"
            )
        elif found != [self._wanted]:
            self._warn(
                f"compute.attention={self._wanted}, but step {step} computed attention with the kernel {kernels}"
            )
        else:
            self._emit(Notice(level="info", message=f"step {step} computed attention with the kernel {kernels}"))

    def on_close(self, loop: Loop) -> None:
        """Stop the profiler of this process after an error: it may train another run."""
        del loop
        if self._recorder is not None:
            self._recorder.stop()

    def _warn(self, message: str) -> None:
        self._emit(Notice(level="warning", message=message))
