"""Keeps the number of the current step in the run's folder, for a rank that ends without a report (`training.evidence`)."""

from __future__ import annotations

from pathlib import Path

from training.callbacks.callback import Callback
from training.data.types import Batch
from training.evidence import StepFile
from training.loop import Loop


class LastStep(Callback):
    """Writes the step of this rank as it starts."""

    def __init__(self, run_directory: Path, *, attempt: int, rank: int) -> None:
        self._file = StepFile(run_directory, attempt=attempt, rank=rank)

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """The next step starts."""
        self._file.set(loop.progress.step + 1)

    def on_close(self, loop: Loop) -> None:
        """Close the file."""
        self._file.close()
