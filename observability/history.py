"""The state of a run, built from its events: the steps that remain after restarts, evaluations, checkpoints, attempts, result.

The progress view, the monitor and the report read it, and so do the metrics, whose counters continue after a restart.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from observability.goodput import GoodputLedger
from observability.objective_metrics import ObjectiveInfo, ranked
from observability.quantities import counted
from observability.runlog import (
    CheckpointCommitted,
    CheckpointUploaded,
    Evaluated,
    Event,
    FlopsCounted,
    Notice,
    Phase,
    RanksMeasured,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
)

PARTS = ("data", "forward", "backward", "communication", "optimizer", "checkpoint", "other")
"""The parts of a step's time, in order of execution; `other` is the remainder."""

State = Literal["running", "done", "interrupted", "failed", "killed"]
"""The state of a run, as the commands print it."""


def state_of(ended: RunEnded | None, *, is_running: bool) -> State:
    """`running`, how the newest driver ended the run, or `killed` where it ended without a record.

    Args:
        ended: the end that the newest driver has recorded, if any.
        is_running: whether a driver held the run's lock before the log was read: one that ends in between has recorded its end.
    """
    if is_running:
        return "running"
    return cast("State", ended.status) if ended else "killed"


def part_seconds(step: Step) -> tuple[float, ...]:
    """Seconds of each of the `PARTS` of a step; their sum is the step's `seconds`, or more if the measured parts alone exceed it."""
    measured = (
        step.data_seconds,
        step.forward_seconds,
        step.backward_seconds,
        step.communication_seconds or 0.0,
        step.optimizer_seconds,
        step.checkpoint_seconds,
    )
    return (*measured, max(0.0, step.seconds - sum(measured)))


def units_of(step: Step) -> float:
    """What the objective counts in a step: its samples, or e.g. tokens."""
    return step.units or step.samples


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A later attempt that resumed training from `step`; `lost_steps` is how many steps it had to repeat."""

    time: float
    step: int
    lost_steps: int


@dataclass(kw_only=True)
class RunHistory:
    """The state of a run after the events added so far.

    Attributes:
        steps: steps that contributed to the current weights; steps lost to a restart are removed.
        evaluations: evaluations of those steps, by step.
        phases: phases of all attempts.
        uploads: checkpoints of those steps that were copied to the run's bucket, by step.
        started: when the run was first started.
        resumed: when it was last started; equal to `started` unless a command resumed the run.
        training: the newest worker group that became ready.
        objective: the metrics of the newest worker group; the loss alone before there is one.
        training_starts: all worker groups that became ready, oldest first.
        ended: None while the run is going.
        flops: the FLOPs of a sample, as they were counted last; None if they were not.
        ranks: what the ranks measured of themselves last.
        last_time: Unix time of the newest event.
        goodput: what the wall time was spent on.
    """

    steps: list[Step] = field(default_factory=list)
    evaluations: list[Evaluated] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    checkpoints: list[CheckpointCommitted] = field(default_factory=list)
    uploads: list[CheckpointUploaded] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    started: RunStarted | None = None
    resumed: RunStarted | None = None
    training: TrainingStarted | None = None
    objective: ObjectiveInfo = field(default_factory=ObjectiveInfo)
    training_starts: list[TrainingStarted] = field(default_factory=list)
    ended: RunEnded | None = None
    flops: FlopsCounted | None = None
    ranks: RanksMeasured | None = None
    last_time: float = 0.0
    goodput: GoodputLedger = field(default_factory=GoodputLedger)
    _earlier_seconds: float = 0.0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> RunHistory:
        """Build the history from events, oldest first."""
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Add the next event; one that changes nothing here only moves `last_time`."""
        match event:
            case RunStarted():
                self._start(event)
            case TrainingStarted():
                self._start_training(event)
            case Phase():
                self.phases.append(event)
            case Step():
                self.steps.append(event)
            case Evaluated():
                insort(self.evaluations, event, key=lambda evaluation: evaluation.step)
            case CheckpointCommitted() | CheckpointUploaded():
                self._save(event)
            case FlopsCounted() | RanksMeasured():
                self._measure(event)
            case Notice():
                self.notices.append(event)
            case RunEnded():
                self.ended = event
        self.last_time = event.time
        self.goodput.add(event)

    def _start(self, event: RunStarted) -> None:
        if self.resumed is not None:
            self._earlier_seconds += self.last_time - self.resumed.time
        self.started = self.started or event
        self.resumed = event
        self.ended = None

    def _start_training(self, event: TrainingStarted) -> None:
        if self.training is not None:
            lost = max(0, self.last_step - event.start_step)
            self.restarts.append(Restart(time=event.time, step=event.start_step, lost_steps=lost))
        while self.steps and self.steps[-1].step > event.start_step:
            self.steps.pop()
        while self.evaluations and self.evaluations[-1].step > event.start_step:
            self.evaluations.pop()
        while self.uploads and self.uploads[-1].step > event.start_step:
            self.uploads.pop()
        self.training = event
        self.ranks = None
        self.objective = ObjectiveInfo.of(event.objective)
        self.training_starts.append(event)

    def _save(self, event: CheckpointCommitted | CheckpointUploaded) -> None:
        if isinstance(event, CheckpointCommitted):
            self.checkpoints.append(event)
        else:
            insort(self.uploads, event, key=lambda upload: upload.step)

    def _measure(self, event: FlopsCounted | RanksMeasured) -> None:
        if isinstance(event, FlopsCounted):
            self.flops = event
        else:
            self.ranks = event

    @property
    def name(self) -> str:
        """Name of the run; empty before the first `RunStarted`."""
        return self.started.run if self.started else ""

    @property
    def last_step(self) -> int:
        """Number of the newest step."""
        if self.steps:
            return self.steps[-1].step
        return self.training.start_step if self.training else 0

    @property
    def skipped_steps(self) -> list[int]:
        """Numbers of the steps that changed no weight, because their gradient was not finite."""
        return [step.step for step in self.steps if not math.isfinite(step.gradient_norm)]

    @property
    def lost_steps(self) -> int:
        """Steps lost to restarts over the whole run."""
        return sum(restart.lost_steps for restart in self.restarts)

    @property
    def epochs(self) -> int:
        """Number of epochs in the planned steps, rounded up; 0 before training."""
        if self.training is None:
            return 0
        return -(-self.training.total_steps // self.training.steps_per_epoch)

    def setting(self, path: str) -> Any:  # noqa: ANN401 - a setting may be of any JSON type
        """The value of a setting, e.g. `loop.global_batch`; None if the event log does not contain it."""
        value: Any = self.resumed.settings if self.resumed else {}
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def workers_text(self, noun: str = "worker") -> str:
        """Its workers: `2 workers`; of an elastic run `1-4 workers`, and once it trains `2 of 1-4 workers`; `? workers` if unknown."""
        most, least = self.setting("scale.workers"), self.setting("scale.min_workers")
        if least in {None, most}:
            return f"? {noun}s" if most is None else counted(most, noun)
        now = "" if self.training is None else f"{self.training.world} of "
        return f"{now}{least}-{most} {noun}s"

    def seconds(self, *, now: float | None = None) -> float:
        """Total wall time of all attempts, without the pauses between them; counts up to `now` while the run is going."""
        if self.resumed is None:
            return 0.0
        end = self.last_time if now is None or self.ended else now
        return self._earlier_seconds + end - self.resumed.time

    def throughput(self, *, newest: int | None = None) -> float:
        """The objective's units, e.g. samples, per second of wall time over the `newest` steps, or over all.

        Excludes evaluations; 0 before the first step.
        """
        chosen = self.steps[-newest:] if newest else self.steps
        seconds = sum(step.seconds for step in chosen)
        return sum(map(units_of, chosen)) / seconds if seconds else 0.0

    def flops_per_second(self, *, newest: int | None = None) -> float | None:
        """FLOP/s of all ranks over the `newest` steps, or over all; None if the FLOPs are not known."""
        chosen = self.steps[-newest:] if newest else self.steps
        seconds = sum(step.seconds for step in chosen)
        if self.flops is None or not seconds:
            return None
        return self.flops.per_sample * sum(step.samples for step in chosen) / seconds

    def mfu(self, *, newest: int | None = None) -> float | None:
        """Model FLOPs utilization: those FLOP/s as a share of what the devices can reach; None if that is not known."""
        rate = self.flops_per_second(newest=newest)
        return rate / self.flops.peak if rate is not None and self.flops is not None and self.flops.peak else None

    def evaluations_of(self, split: str) -> list[Evaluated]:
        """The evaluations of a split, oldest first."""
        return [evaluation for evaluation in self.evaluations if evaluation.split == split]

    def best_validation(self) -> Evaluated | None:
        """The best validation by the metric that ranks the checkpoints, the earliest of equals; None if none has measured it."""
        metric, found = self.objective.headline, self.evaluations_of("validation")
        values = {place: evaluation.value(metric.name) for place, evaluation in enumerate(found)}
        best = ranked(values, higher_is_better=metric.higher_is_better)[:1]
        return found[best[0]] if best else None

    def test_evaluation(self) -> Evaluated | None:
        """The newest evaluation of the test split; None if there is none."""
        return next(reversed(self.evaluations_of("test")), None)
