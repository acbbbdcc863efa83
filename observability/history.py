"""What a run's events add up to: the steps that still stand after restarts, its evaluations, checkpoints, attempts and end.

Everything that shows a run reads it from here: the progress view, the monitor, the report; and the counters that go on after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Event,
    Notice,
    Phase,
    Restored,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
)

PARTS = ("data", "forward", "backward", "optimizer", "checkpoint", "other")
"""The parts of a step's time, in the order in which they come; `other` is what the rest leaves of it."""


def part_seconds(step: Step) -> tuple[float, ...]:
    """Seconds of the `PARTS` of a step; they add up to its `seconds` unless the measured parts alone are longer."""
    measured = (
        step.data_seconds,
        step.forward_seconds,
        step.backward_seconds,
        step.optimizer_seconds,
        step.checkpoint_seconds,
    )
    return (*measured, max(0.0, step.seconds - sum(measured)))


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Training that went on after an earlier attempt, from `step` on; `lost_steps` were done before and had to be done again."""

    time: float
    step: int
    lost_steps: int


@dataclass(kw_only=True)
class RunHistory:
    """A run as far as its events tell it.

    Attributes:
        steps: steps of the weights as they are: those that a restart threw away are gone from here.
        evaluations: likewise.
        phases: of all attempts.
        started: the first acceptance of the settings.
        resumed: the newest one; the same as `started` in a run that was never resumed by a command.
        training: the newest group of workers that was ready.
        ended: None while the run goes on.
    """

    steps: list[Step] = field(default_factory=list)
    evaluations: list[Evaluated] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    checkpoints: list[CheckpointCommitted] = field(default_factory=list)
    restores: list[Restored] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    started: RunStarted | None = None
    resumed: RunStarted | None = None
    training: TrainingStarted | None = None
    training_begun: list[TrainingStarted] = field(default_factory=list)
    ended: RunEnded | None = None
    last_time: float = 0.0
    _seconds_before: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunHistory:
        """The history that the events make, oldest first."""
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Take one more event."""
        self._take(event)
        self.last_time = event.time

    @singledispatchmethod
    def _take(self, event: Event) -> None:
        """Kinds without a rule of their own leave the history as it is."""

    @_take.register
    def _(self, event: RunStarted) -> None:
        if self.resumed is not None:
            self._seconds_before += self.last_time - self.resumed.time
        self.started = self.started or event
        self.resumed = event
        self.ended = None

    @_take.register
    def _(self, event: Phase) -> None:
        self.phases.append(event)

    @_take.register
    def _(self, event: TrainingStarted) -> None:
        if self.training is not None:
            lost = max(0, self.last_step - event.start_step)
            self.restarts.append(Restart(time=event.time, step=event.start_step, lost_steps=lost))
        while self.steps and self.steps[-1].step > event.start_step:
            self.steps.pop()
        while self.evaluations and self.evaluations[-1].step > event.start_step:
            self.evaluations.pop()
        self.training = event
        self.training_begun.append(event)

    @_take.register
    def _(self, event: Step) -> None:
        self.steps.append(event)

    @_take.register
    def _(self, event: Evaluated) -> None:
        self.evaluations.append(event)

    @_take.register
    def _(self, event: CheckpointCommitted) -> None:
        self.checkpoints.append(event)

    @_take.register
    def _(self, event: Restored) -> None:
        self.restores.append(event)

    @_take.register
    def _(self, event: Notice) -> None:
        self.notices.append(event)

    @_take.register
    def _(self, event: RunEnded) -> None:
        self.ended = event

    @property
    def name(self) -> str:
        """Name of the run; empty before it is known."""
        return self.started.run if self.started else ""

    @property
    def status(self) -> str:
        """`running`, `done`, `interrupted` or `failed`."""
        return self.ended.status if self.ended else "running"

    @property
    def last_step(self) -> int:
        """Number of the newest step that stands."""
        if self.steps:
            return self.steps[-1].step
        return self.training.start_step if self.training else 0

    @property
    def lost_steps(self) -> int:
        """Steps that restarts threw away, over the whole run."""
        return sum(restart.lost_steps for restart in self.restarts)

    @property
    def epochs(self) -> int:
        """Epochs that the planned steps make, a begun one included; 0 before training."""
        if self.training is None:
            return 0
        return -(-self.training.total_steps // self.training.steps_per_epoch)

    def setting(self, path: str) -> Any:  # noqa: ANN401 - a setting may be of any JSON type
        """The value of a setting, e.g. `loop.global_batch`; None where the run's log does not hold it."""
        value: Any = self.resumed.settings if self.resumed else {}
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def seconds(self, *, now: float | None = None) -> float:
        """Wall time of all attempts together, without the pauses between them; up to `now` while the run goes on."""
        if self.resumed is None:
            return 0.0
        end = self.last_time if now is None or self.ended else now
        return self._seconds_before + end - self.resumed.time

    def samples_per_second(self, *, newest: int | None = None) -> float:
        """Samples over wall time of the newest steps, or of all; 0 before the first one. Evaluations are left out."""
        chosen = self.steps[-newest:] if newest else self.steps
        seconds = sum(step.seconds for step in chosen)
        return sum(step.samples for step in chosen) / seconds if seconds else 0.0

    def evaluations_of(self, split: str) -> list[Evaluated]:
        """Evaluations of a split, oldest first."""
        return [evaluation for evaluation in self.evaluations if evaluation.split == split]

    def best_validation(self) -> Evaluated | None:
        """The validation of the highest accuracy, the earliest of equal ones; None where there was none."""
        return max(self.evaluations_of("validation"), key=lambda evaluation: evaluation.accuracy, default=None)

    def test(self) -> Evaluated | None:
        """The newest evaluation of the test split; None where there was none."""
        return next(reversed(self.evaluations_of("test")), None)
