"""Rank 0's side of validation next to the training: keeps the evaluator busy and alive, and collects what it measures."""

from __future__ import annotations

from typing import Final

from observability.runlog import Emit, Notice
from training.launch.task import RankTask
from training.validation.messages import Answer
from training.validation.process import EvaluatorDiedError, EvaluatorProcess
from training.validation.queue import ValidationQueue

_RESTARTS: Final = 1
"""An evaluator that dies twice would die again: of memory, or of the user's own code."""

_SLOW: Final = "the evaluator was still busy with an earlier one when the checkpoint of step {step} took its turn"
_GONE: Final = "its evaluator has died"


class Validator:
    """Validates the checkpoints of a run in another process, one at a time.

    Attributes:
        has_given_up: whether the evaluator died too often; nothing is validated any more.
    """

    def __init__(self, task: RankTask, *, gpu: int | None, emit: Emit) -> None:
        """Start nothing yet.

        Args:
            task: the attempt.
            gpu: local number of the GPU to compute on; None is the CPU.
            emit: accepts events.
        """
        self._task = task
        self._gpu = gpu
        self._emit = emit
        self._queue = ValidationQueue()
        self._process: EvaluatorProcess | None = None
        self._restarts = 0
        self.has_given_up = False

    @property
    def pending(self) -> list[int]:
        """Steps that are being validated or wait, oldest first."""
        return [step for step in (self._queue.running, self._queue.waiting) if step is not None]

    def start(self) -> None:
        """Start the evaluator; it takes seconds until it is ready, in which the training goes on."""
        self._process = EvaluatorProcess(self._task, gpu=self._gpu)

    def add(self, step: int) -> tuple[int, str] | None:
        """Have a committed checkpoint validated; returns the step that will not be for that, and why, if there is one."""
        if self._process is None:
            return step, _GONE
        if (replaced := self._queue.add(step)) is not None:
            return replaced, _SLOW.format(step=step)
        if self._queue.running == step:
            self._process.request(step)
        return None

    def answers(self, *, timeout: float = 0.0) -> list[Answer]:
        """What has been measured since the last call; waits up to `timeout` seconds if there is nothing yet.

        An evaluator that has died is started again once. After that, every pending step is answered with the problem.
        """
        if self._process is None:
            return []
        try:
            found = self._process.answers(timeout=timeout)
        except EvaluatorDiedError as error:
            return self._recover(str(error))
        for _ in found:
            if (following := self._queue.finish()) is not None:
                self._process.request(following)
        return found

    def close(self) -> None:
        """End the evaluator; what is pending stays undone."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _recover(self, reason: str) -> list[Answer]:
        self.close()
        if self._restarts < _RESTARTS:
            self._restarts += 1
            self._warn(f"the evaluator has died ({reason}) and is started again")
            self.start()
            if self._process is not None and self._queue.running is not None:
                self._process.request(self._queue.running)
            return []
        self.has_given_up = True
        self._warn(
            f"the evaluator has died again ({reason}; logs/evaluator.log): from now on the ranks evaluate between the epochs, "
            "as with loop.validation=inline"
        )
        return [Answer(step=step, problem=_GONE) for step in self._queue.clear()]

    def _warn(self, message: str) -> None:
        self._emit(Notice(level="warning", message=message))
