"""Keeps the moving average of the weights up to date, and saves it with the run."""

from __future__ import annotations

from typing import ClassVar

from training.callbacks.callback import Callback
from training.checkpoint.sharding import NamedTensors
from training.data.types import Batch
from training.loop import Loop
from training.step import StepResult
from training.weight_average import WeightAverage


class Averaging(Callback):
    """Updates the average after every step that changed the weights."""

    name: ClassVar[str] = "ema"

    def __init__(self, average: WeightAverage) -> None:
        self._average = average

    def on_run_start(self, loop: Loop) -> None:
        """Start from the restored weights, if the checkpoint has no average."""
        self._average.start()

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Add the weights of the step."""
        if result.applied:
            self._average.update(loop.progress.step)

    def state_dict(self) -> NamedTensors:
        """The average."""
        return self._average.state_dict()

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """The averages to read.

        Raises:
            ResumeMismatchError: they are those of another model.
        """
        return self._average.tensors_to_load(saved)

    def load_state_dict(self, state_dict: NamedTensors, /) -> None:
        """Load the average."""
        self._average.load_state_dict(state_dict)
