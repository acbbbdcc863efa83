"""Saves the run: every `checkpoint.every_steps`, after an evaluation among the best or after every one, and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from observability.objective_metrics import Metric, ranked
from training.callbacks.callback import Callback
from training.checkpoint.late_metrics import LateValidations
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.ranks import WritingRanks
from training.checkpoint.retention import Retention
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import CheckpointStore
from training.checkpoint.writer import AsyncCheckpointer
from training.config.schema import CheckpointSettings
from training.evaluate import EvaluationResult
from training.loop import Loop, StepRecord
from training.step_reducer import StepSums


class Checkpointing(Callback):
    """Saves all registered state; its own is the best validation metrics so far, best first.

    Threads write: rank 0's the whole state, or every rank's its part, if the strategy shards the state. In either case every rank
    collects its state, which may communicate. A failed write ends the run: continuing would risk more work than
    `checkpoint.every_steps`.
    """

    name: ClassVar[str] = "best_metrics"

    def __init__(
        self,
        store: CheckpointStore,
        states: StateRegistry,
        *,
        identity: Identity,
        settings: CheckpointSettings,
        ranked_by: Metric,
        late: LateValidations,
        ranks: Callable[[], WritingRanks | None],
    ) -> None:
        """Prepare to save.

        Args:
            store: where to save.
            states: what to save.
            identity: the run.
            settings: when to save, and what to keep.
            ranked_by: the validation metric that ranks checkpoints.
            late: validations that come after the commit.
            ranks: makes the ranks that write; None on one that does not.
        """
        self._store = store
        self._states = states
        self._identity = identity
        self._settings = settings
        self._ranked_by = ranked_by
        self._late = late
        self._retention = Retention.of(settings, higher_is_better=ranked_by.higher_is_better)
        self._ranks = ranks
        self._writer: AsyncCheckpointer | None = None
        self._best: list[float] = []
        self._metric: float | None = None
        self._is_among_best = False
        self._is_reserved = False

    def state_dict(self) -> dict[str, list[float]]:
        """The best metrics."""
        return {"metrics": self._best}

    def load_state_dict(self, state_dict: dict[str, list[float]], /) -> None:
        """Restore the best metrics."""
        self._best = [metric for metric in state_dict["metrics"] if not math.isnan(metric)]

    def on_run_start(self, loop: Loop) -> None:
        """Start the writing thread, which first removes the leftovers of crashed writers."""
        if (ranks := self._ranks()) is not None:
            self._writer = AsyncCheckpointer(
                self._store,
                ranks=ranks,
                identity=self._identity,
                retention=self._retention,
                start_step=loop.progress.step,
                late=self._late,
            )

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """Report commits as they come, and allocate host memory once the optimizer has its state, so no save need do it."""
        if self._writer is not None:
            if self._late.take_change():
                self._writer.prune()
            self._report(loop, self._writer)
        if self._is_reserved:
            return
        self._is_reserved = True
        if self._writer is not None:
            self._writer.reserve(self._states)
        else:
            self._states.collect()

    def is_due(self, loop: Loop) -> bool:
        """Every `checkpoint.every_steps` steps."""
        return loop.progress.step % self._settings.every_steps == 0

    def on_due(self, loop: Loop) -> None:
        """Save between two steps; the next one reports the delay."""
        loop.checkpoint_seconds = self._save(loop)

    def on_evaluation(self, loop: Loop, split: str, result: EvaluationResult, at: TrainProgress) -> None:
        """Rank a validation metric among the best, unless it is of a checkpoint that was committed without it."""
        if split != "validation" or result.is_asynchronous:
            return
        self._metric = result.metrics[self._ranked_by.name]
        known = dict(enumerate([*self._best, self._metric]))
        order = ranked(known, higher_is_better=self._retention.higher_is_better)[: self._settings.keep_best]
        self._is_among_best = len(self._best) in order
        self._best = [known[place] for place in order]

    def on_epoch_end(self, loop: Loop) -> None:
        """Save, with the epoch's metric, if a checkpoint is due or the metric is among the best, or after any evaluation.

        A checkpoint that is validated next to the training is saved without. The first step of the next epoch reports the delay.
        """
        was_evaluated = self._metric is not None
        awaits = loop.progress.step in self._late.awaited
        every = was_evaluated and self._settings.after_evaluation == "every"
        if self.is_due(loop) or self._is_among_best or awaits or every:
            loop.checkpoint_seconds = self._save(loop, awaits_metric=awaits)
        self._metric, self._is_among_best = None, False

    def on_train_end(self, loop: Loop) -> None:
        """Save the final state and wait until it is committed."""
        self._save(loop, final=True)

    def on_close(self, loop: Loop) -> None:
        """Wait for pending writes."""
        if self._writer is not None:
            if self._late.take_change():
                self._writer.prune()
            self._writer.close()
            self._report(loop, self._writer)

    def _save(self, loop: Loop, *, awaits_metric: bool = False, final: bool = False) -> float:
        """Save the state; returns the seconds that the loop waited.

        Raises:
            CheckpointError: this checkpoint or an earlier one could not be written.
        """
        if self._writer is None:
            self._states.collect()
            return 0.0
        stall = self._writer.save(
            loop.progress, self._states, metric=self._metric, awaits_metric=awaits_metric, final=final
        )
        self._report(loop, self._writer)
        return stall

    def _report(self, loop: Loop, writer: AsyncCheckpointer) -> None:
        for committed in writer.poll():
            for hook in loop.hooks.checkpoint:
                hook(loop, committed)
