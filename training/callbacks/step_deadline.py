"""Tells the deadlines of a rank which step is under way."""

from __future__ import annotations

from training.callbacks.callback import Callback
from training.data.types import Batch
from training.deadlines import Deadlines
from training.loop import Loop
from training.step import StepResult


class StepDeadline(Callback):
    """Bounds the steps of this rank.

    A step lasts from the end of the one before it, with the wait for its batch; the first one of an epoch begins with its batch.
    An evaluation has no deadline, but each of its batches has.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        """Args: `deadlines` run from the start of the loop to its end."""
        self._deadlines = deadlines
        self._is_first = True

    def on_run_start(self, loop: Loop) -> None:
        """Start to watch."""
        self._deadlines.start()

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """The first step of an attempt, or of an epoch, begins."""
        if self._is_first or not loop.progress.step_in_epoch:
            self._deadlines.step_begins(loop.progress.step + 1, is_first=self._is_first)
            self._is_first = False

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """The next step begins."""
        self._deadlines.step_begins(loop.progress.step + 1)

    def on_epoch_end(self, loop: Loop) -> None:
        """An evaluation may follow."""
        self._deadlines.no_step()

    def on_train_end(self, loop: Loop) -> None:
        """No step follows."""
        self._deadlines.no_step()

    def on_close(self, loop: Loop) -> None:
        """Watch no longer."""
        self._deadlines.close()
