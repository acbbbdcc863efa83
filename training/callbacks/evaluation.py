"""Evaluates the model: on the validation split between epochs, on the test split at the end."""

from __future__ import annotations

from collections.abc import Callable

from training.callbacks.callback import Callback
from training.data.loader import EvalLoader
from training.evaluate import EvaluationResult
from training.loop import Loop


class Evaluation(Callback):
    """Evaluates every `every_epochs` epochs and after the last step, and calls `on_evaluation` of the other callbacks."""

    def __init__(
        self,
        evaluate: Callable[[EvalLoader], EvaluationResult],
        *,
        validation: EvalLoader,
        test: EvalLoader | None,
        every_epochs: int,
    ) -> None:
        """Args: `test` is None if the validation split is the test split, too: the final weights are then evaluated once."""
        self._evaluate = evaluate
        self._validation = validation
        self._test = test
        self._every_epochs = every_epochs
        self._newest: tuple[int, EvaluationResult] | None = None

    def is_due_after(self, epoch: int) -> bool:
        """Whether the validation split is evaluated after an epoch that is not the last."""
        return epoch % self._every_epochs == 0

    def on_epoch_end(self, loop: Loop) -> None:
        """Evaluate on the validation split, if due."""
        if loop.is_done or self.is_due_after(loop.progress.epoch):
            self._newest = loop.progress.step, self._report(loop, "validation", self._evaluate(self._validation))

    def on_run_end(self, loop: Loop) -> None:
        """Evaluate the final weights on the test split, unless the run was stopped."""
        if not loop.is_done:
            return
        if self._test is None and self._newest is not None and self._newest[0] == loop.progress.step:
            self._report(loop, "test", self._newest[1])
        else:
            self._report(loop, "test", self._evaluate(self._test or self._validation))

    def _report(self, loop: Loop, split: str, result: EvaluationResult) -> EvaluationResult:
        for hook in loop.hooks.evaluation:
            hook(loop, split, result, loop.progress)
        return result
