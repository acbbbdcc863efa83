"""Tells PowerSGD which steps were applied, and saves its state with the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from training.callbacks.callback import Callback
from training.communication.powersgd import PowerSgd
from training.data.types import Batch
from training.loop import Loop
from training.precision import Precision
from training.step import StepResult


class Compression(Callback):
    """Keeps PowerSGD in step with the loop."""

    name: ClassVar[str] = "communication"

    def __init__(self, powersgd: PowerSgd, precision: Precision) -> None:
        self._powersgd = powersgd
        self._precision = precision

    def on_step_start(self, loop: Loop) -> None:
        """Announce the step."""
        self._powersgd.start_step(loop.progress.step + 1, scale=self._precision.scale)

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Keep the errors of the step, or forget them."""
        self._powersgd.end_step(applied=result.applied)

    def state_dict(self) -> dict[str, Any]:
        """The errors of all ranks, and the matrices of the warm start."""
        return self._powersgd.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Load them."""
        self._powersgd.load_state_dict(state_dict)


class NoCompression(Callback):
    """Lets a run that PowerSGD has compressed resume without it."""

    name: ClassVar[str] = Compression.name

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Forget PowerSGD's state, and say so."""
        self._report(
            "the checkpoint has PowerSGD's error feedback, which this run forgets: of the gradients so far, what was not sent is lost"
        )
