"""Validates next to the training: another process evaluates the checkpoint of an epoch while the ranks train the next ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import torch
import torch.distributed as dist

from observability.runlog import Emit, Notice
from training.callbacks.callback import Callback
from training.callbacks.evaluation import Evaluation
from training.checkpoint.late_metrics import LateMetrics, LateValidations
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.writer import CommittedCheckpoint
from training.evaluate import EvaluationResult
from training.loop import Loop, StepRecord
from training.step_reducer import StepSums
from training.validation.messages import Answer
from training.validation.validator import Validator

_TURN_SECONDS: Final = 5.0
"""So long the peers of rank 0 wait at the end of the run before it tells them to wait on: no collective waits for a validation."""

_REPORT_SECONDS: Final = 30.0


class AsyncEvaluation(Callback):
    """Has rank 0's evaluator validate the checkpoint of every due epoch, and calls `on_evaluation` there when it has.

    The ranks themselves evaluate the last epoch, when there is nothing left to train meanwhile; the test split; and every epoch once
    the evaluator has died too often. Every due epoch commits a checkpoint, so no rank decides by a metric that only rank 0 has.
    """

    def __init__(
        self,
        inline: Evaluation,
        validator: Validator | None,
        late: LateValidations,
        *,
        prepared: Callable[[], AbstractContextManager[None]],
        emit: Emit,
        patience: float,
        world: int,
        device: torch.device,
    ) -> None:
        """Start nothing yet.

        Args:
            inline: evaluates on the ranks.
            validator: on rank 0; None on its peers.
            late: the validations that are awaited.
            prepared: the context in which the model has what is evaluated. An evaluation by the ranks leaves the others with rank 0's
                buffers; entering it does the same, so that the training does not depend on who evaluates.
            emit: accepts events.
            patience: seconds that the end of the run waits for validations.
            world: number of ranks.
            device: of the collectives.
        """
        self._inline = inline
        self._validator = validator
        self._late = late
        self._prepared = prepared
        self._emit = emit
        self._patience = patience
        self._world = world
        self._device = device
        self._start_step = 0
        self._is_inline = False
        self._next_report = _TURN_SECONDS

    def on_run_start(self, loop: Loop) -> None:
        """Start the evaluator, with the validations that an earlier attempt has left."""
        self._start_step = loop.progress.step
        if self._validator is None:
            return

        def is_due(progress: TrainProgress) -> bool:
            is_whole = progress.step_in_epoch == loop.plan.steps_per_epoch
            return is_whole and progress.step < loop.total_steps and self._inline.is_due_after(progress.epoch)

        found = self._late.find(until=loop.progress.step, is_due=is_due)
        last_epoch = math.ceil(loop.total_steps / loop.plan.steps_per_epoch)
        if found or any(map(self._inline.is_due_after, range(loop.progress.epoch, last_epoch))):
            self._validator.start()
        for step in found:
            self._validate(self._validator, step)

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """Report what has been measured."""
        if self._validator is not None:
            self._collect(loop, self._validator)

    def on_epoch_end(self, loop: Loop) -> None:
        """Have the epoch's checkpoint validated, which is saved next; or evaluate now."""
        if loop.is_done:
            self._inline.on_epoch_end(loop)
            return
        is_resumed_from = loop.progress.step == self._start_step  # its validation is done, or was found at the start
        if is_resumed_from or not self._inline.is_due_after(loop.progress.epoch):
            return
        if not self._is_inline:
            self._is_inline = self._told_by_rank_0(self._validator is not None and self._validator.has_given_up)
        if self._is_inline:
            self._inline.on_epoch_end(loop)
            return
        with self._prepared():
            self._late.expect(loop.progress)

    def on_checkpoint(self, loop: Loop, checkpoint: CommittedCheckpoint) -> None:
        """Hand a checkpoint that is to be validated to the evaluator."""
        assert self._validator is not None, "checkpoints are reported on rank 0"
        awaited = self._late.awaited
        for step in awaited.intersection(checkpoint.superseded):
            self._skip(step, f"storage is slow, and the checkpoint of step {checkpoint.step} replaced its own")
        if checkpoint.step in awaited:
            self._validate(self._validator, checkpoint.step)

    def on_run_end(self, loop: Loop) -> None:
        """Evaluate the test split, and wait for the validations that have not ended. A stopped run leaves them to the resumed one."""
        self._inline.on_run_end(loop)
        if not loop.is_done:
            return
        began = time.monotonic()
        while self._told_by_rank_0(self._validator is not None and self._waits(loop, self._validator, began=began)):
            pass

    def on_close(self, loop: Loop) -> None:
        """End the evaluator."""
        if self._validator is not None:
            self._validator.close()

    def _waits(self, loop: Loop, validator: Validator, *, began: float) -> bool:
        """Wait a turn for validations, since the time `began`; whether some are still to come, and there is time."""
        if not validator.pending:
            return False
        waited = time.monotonic() - began
        if waited >= self._patience:
            self._warn(
                f"{_named(validator.pending)} not validated {self._patience:g} s after the end of the training (loop.validation_wait): "
                "resume the run to validate what is missing"
            )
            return False
        if waited >= self._next_report:
            self._next_report = waited + _REPORT_SECONDS
            self._emit(
                Notice(
                    level="info",
                    message=f"{_named(validator.pending)} still being validated; the run waits up to {self._patience:g} s for that",
                )
            )
        self._collect(loop, validator, timeout=min(_TURN_SECONDS, self._patience - waited))
        return bool(validator.pending)

    def _collect(self, loop: Loop, validator: Validator, *, timeout: float = 0.0) -> None:
        for answer in validator.answers(timeout=timeout):
            if answer.problem:
                self._skip(answer.step, answer.problem)
            else:
                self._report(loop, answer)

    def _report(self, loop: Loop, answer: Answer) -> None:
        """Pass a result on, then record it: after a crash in between it is measured once more, and none is lost."""
        result = EvaluationResult(
            metrics=answer.metrics, samples=answer.samples, seconds=answer.seconds, is_asynchronous=True
        )
        for hook in loop.hooks.evaluation:
            hook(loop, "validation", result, self._late.progress(answer.step))
        self._settle(answer.step, LateMetrics(metrics=answer.metrics))

    def _validate(self, validator: Validator, step: int) -> None:
        if (left_out := validator.add(step)) is not None:
            self._skip(*left_out)

    def _skip(self, step: int, reason: str) -> None:
        self._warn(f"epoch {self._late.progress(step).epoch} (step {step}) is not validated: {reason}")
        self._settle(step, LateMetrics(skipped=reason))

    def _settle(self, step: int, outcome: LateMetrics) -> None:
        try:
            self._late.settle(step, outcome)
        except OSError as error:
            self._warn(
                f"the metrics of step {step} were not written to its checkpoint, which they cannot rank: {error}"
            )

    def _warn(self, message: str) -> None:
        self._emit(Notice(level="warning", message=message))

    def _told_by_rank_0(self, answer: bool) -> bool:  # noqa: FBT001 - the one value that is told
        """What rank 0 has answered; a collective."""
        if self._world == 1:
            return answer
        told = torch.tensor([answer], dtype=torch.int32, device=self._device)
        dist.broadcast(told, src=0)
        return bool(told)


def _named(steps: Sequence[int]) -> str:
    """`step 21 is` or `steps 21, 42 are`."""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(map(str, steps))} {'is' if len(steps) == 1 else 'are'}"
