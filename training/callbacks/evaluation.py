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
        test: EvalLoader,
        every_epochs: int,
    ) -> None:
        self._evaluate = evaluate
        self._validation = validation
        self._test = test
        self._every_epochs = every_epochs

    def is_due_after(self, epoch: int) -> bool:
        """Whether the validation split is evaluated after an epoch that is not the last."""
        return epoch % self._every_epochs == 0

    def on_epoch_end(self, loop: Loop) -> None:
        """Evaluate on the validation split, if due."""
        if loop.is_done or self.is_due_after(loop.progress.epoch):
            self._report(loop, "validation", self._validation)

    def on_run_end(self, loop: Loop) -> None:
        """Evaluate the final weights on the test split, unless the run was stopped."""
        if loop.is_done:
            self._report(loop, "test", self._test)

    def _report(self, loop: Loop, split: str, loader: EvalLoader) -> None:
        result = self._evaluate(loader)
        for hook in loop.hooks.evaluation:
            hook(loop, split, result, loop.progress)
