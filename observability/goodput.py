"""The goodput of a run: what every second of its wall time was spent on, folded from its event log.

Time in optimizer steps that still count is productive, everything else is a loss with a name (`observability.time_classes`). The ledger
sweeps over the events and remembers up to when time is accounted. An event gives the time since then to classes, so no second counts twice
or not at all, and the classes add up to the wall time. The log spans restarts and resumes, and so does the ledger. A wall clock that is set
between two events of a machine changes nothing, because they have its uptime too (`observability.steady_clock`).
What the time cost is counted with it, at the price that the driver of that time had (`observability.cost`), with as many workers as its
ranks were.

It sees a run as rank 0 does. What rank 0 waits for its peers' gradients when it has its own is communication; an all-reduce that overlaps
with the backward pass is part of its time, and counts as productive. Logs of older versions do not have that wait: of those, the time that
a slower rank took for its data and forward pass is taken for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from observability.cost import UNPAID, RunCost
from observability.quantities import duration, percent
from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Event,
    Phase,
    RunEnded,
    RunLogReader,
    RunStarted,
    Step,
    TrainingStarted,
    WorkersFailed,
    WorkersMoved,
)
from observability.spent import NOTHING, SECONDS_PER_HOUR, Spent, SpentByClass, StepGroup, net
from observability.steady_clock import SteadyClock
from observability.time_classes import CLASSES, LOOP_CLASSES, TimeClass

CLOCK_STEP_SECONDS = 60.0
"""An event that is older than the accounted time by more was written after the clock was set back, if it has no uptime. Others are merely
late: processes write to the log in any order, rank 0 writes its steps in batches, and the clocks of two machines differ."""

_MAX_UNSAVED = 512
"""Groups of steps since the newest checkpoint; the newer half of them has one step each."""

_MAX_SAVED = 64
"""Groups of steps up to a checkpoint, one for each of the newest ones."""

_SHOWN_LOSSES = 3


class GoodputLedger:
    """The wall time of a run by class, and its cost, after the events added so far.

    Memory is bounded. A restart takes back what the steps after its checkpoint were counted as, so the ledger keeps the sums of the steps
    between the newest checkpoints, and of each step since the last one. Where there are too many, neighbours become one group; a restart
    within a group takes back its share.
    """

    def __init__(self) -> None:
        self._counted: SpentByClass = dict.fromkeys(CLASSES, NOTHING)
        self._repeated: SpentByClass = dict.fromkeys(LOOP_CLASSES, NOTHING)
        self._saved: list[StepGroup] = []
        self._unsaved: list[StepGroup] = []
        self._clock = SteadyClock()
        self._until: float | None = None
        self._open: TimeClass = "startup"
        self._has_trained = False
        self._failure = ""
        self._by_cause: dict[str, float] = {}
        self._price: float | None = None
        self._worker_price = 0.0
        self._workers = 0
        self._has_price = False
        self._unpriced_seconds = 0.0

    @classmethod
    def of_run(cls, run_directory: Path) -> GoodputLedger:
        """Fold a run's event log, which is streamed; a run without a log has no wall time."""
        ledger = cls()
        for event in RunLogReader(run_directory).read_new():
            ledger.add(event)
        return ledger

    @property
    def counted(self) -> Mapping[TimeClass, float]:
        """Seconds of each class as they were counted at first; they never decrease."""
        return {name: spent.seconds for name, spent in self._counted.items()}

    @property
    def repeated(self) -> Mapping[TimeClass, float]:
        """Of those, seconds that became lost because a restart repeated their steps; they never decrease."""
        return {name: spent.seconds for name, spent in self._repeated.items()}

    @property
    def counted_dollars(self) -> Mapping[TimeClass, float]:
        """US dollars of each class as they were counted at first; they never decrease."""
        return {name: spent.dollars for name, spent in self._counted.items()}

    @property
    def repeated_dollars(self) -> Mapping[TimeClass, float]:
        """Of those, dollars that became lost because a restart repeated their steps; they never decrease."""
        return {name: spent.dollars for name, spent in self._repeated.items()}

    @property
    def cost(self) -> RunCost | None:
        """What the run cost; None if no driver of it has known its price."""
        if not self._has_price:
            return None
        return RunCost(
            by_class=net(self.counted_dollars, self.repeated_dollars), unpriced_seconds=self._unpriced_seconds
        )

    @property
    def has_trained(self) -> bool:
        """Whether the ranks were ready at least once."""
        return self._has_trained

    @property
    def seconds(self) -> dict[TimeClass, float]:
        """Seconds of each class; they add up to `wall_seconds`."""
        return net(self.counted, self.repeated)

    @property
    def wall_seconds(self) -> float:
        """Seconds from the first start of the run, or its submission, to its newest event, pauses included."""
        return sum(spent.seconds for spent in self._counted.values())

    @property
    def ratio(self) -> float:
        """The goodput: the productive part of the wall time, from 0 to 1."""
        wall = self.wall_seconds
        return self.seconds["productive"] / wall if wall else 0.0

    def losses(self) -> list[tuple[TimeClass, float]]:
        """The other classes that took time, and their seconds, the largest first."""
        taken = [(name, value) for name, value in self.seconds.items() if name != "productive" and value > 0]
        return sorted(taken, key=lambda loss: -loss[1])

    @property
    def failure_seconds(self) -> Mapping[str, float]:
        """What failures took, by their cause: of the classes detection, restart and lost the seconds of each."""
        return self._by_cause

    def describe(self) -> str:
        """The goodput and the largest losses in one line: `81.3 %; startup 9.1 s (12.2 %), data 2.0 s (2.7 %); lost process 5.1 s`."""
        wall = self.wall_seconds
        losses = [f"{name} {duration(value)} ({percent(value / wall)})" for name, value in self.losses()]
        causes = [f"{cause.replace('_', ' ')} {duration(value)}" for cause, value in self._by_cause.items()]
        return "; ".join(filter(None, [percent(self.ratio), ", ".join(losses[:_SHOWN_LOSSES]), ", ".join(causes)]))

    def add(self, event: Event) -> None:
        """Account the time up to the next event of the log; one that changes nothing here is ignored."""
        written = event.time
        event = self._clock.steady(event)
        match event:
            case Step():
                self._step(event)
            case Evaluated(is_asynchronous=False):
                self._evaluated(event)
            case Phase():
                self._phase(event)
            case TrainingStarted():
                self._ready(event)
            case CheckpointCommitted():
                self._commit(event.step)
            case WorkersFailed():
                self._failure = event.cause
                self._end_of_workers(event.time, then="restart" if event.restarts else "finish")
            case WorkersMoved():
                self._count("restart", self._advance(event.time))
                self._open = "restart"
            case RunStarted():
                self._start(event, submitted=event.submitted and event.submitted - (written - event.time))
            case RunEnded():
                self._end_of_driver(event.time, then="idle")

    def _start(self, event: RunStarted, *, submitted: float) -> None:
        self._failure = ""
        waited: TimeClass = "idle"
        if 0 < submitted < event.time and (self._until is None or submitted > self._until):
            self._count("idle", self._advance(submitted))
            waited = "queue"  # and not if its job has started a driver before
        self._count(waited, self._advance(event.time))
        self._open = self._starting
        self._price, self._worker_price = event.dollars_per_hour, event.dollars_per_worker_hour
        self._workers = _fewest_workers(event)
        self._has_price = self._has_price or self._price is not None

    def _step(self, event: Step) -> None:
        newest = self._newest
        if newest is not None and event.step <= newest.last:
            self._take_back(event.step - 1)  # the event of the restart is missing: its line was torn
        gap = self._advance(event.time)
        seconds_of_step = _spent(event, gap)
        self._count(self._open, max(0.0, gap - sum(seconds_of_step.values())))
        self._open, self._has_trained = "other", True
        spent = {name: self._charge(name, seconds) for name, seconds in seconds_of_step.items()}
        self._unsaved.append(StepGroup(first=event.step, last=event.step, spent=spent))
        if len(self._unsaved) == _MAX_UNSAVED:
            older = self._unsaved[: _MAX_UNSAVED // 2]
            self._unsaved[: _MAX_UNSAVED // 2] = map(StepGroup.merged, older[::2], older[1::2])

    def _evaluated(self, event: Evaluated) -> None:
        gap = self._advance(event.time)
        seconds = _within(event.seconds, gap)
        self._count("evaluation", seconds)
        self._count(self._open, gap - seconds)

    def _phase(self, event: Phase) -> None:
        if event.name == "finish":
            if event.process == "driver":
                self._end_of_driver(event.time, then="finish")
            else:
                self._count(self._open, self._advance(event.time))
                self._open = "finish"
        elif self._open in {
            "other",
            "finish",
        }:  # older logs do not say that the workers failed, only that new ones start
            self._end_of_workers(event.time, then="restart")
        else:
            self._count(self._open, self._advance(event.time))
            self._open = self._starting if self._open == "idle" else self._open

    def _ready(self, event: TrainingStarted) -> None:
        name: TimeClass = self._open if self._open in {"startup", "restart"} else "restart"
        self._count(name, self._advance(event.time))
        self._open, self._has_trained, self._workers = "other", True, event.world
        self._take_back(event.start_step)
        self._failure = ""

    @property
    def _starting(self) -> TimeClass:
        return "restart" if self._has_trained else "startup"

    def _end_of_workers(self, time: float, *, then: TimeClass) -> None:
        """A failure is known at this time."""
        self._count("detection" if self._open in {"other", "finish"} else self._open, self._advance(time))
        self._open = then

    def _end_of_driver(self, time: float, *, then: TimeClass) -> None:
        """The driver ends; if it does not wait for the step that its workers are in, that is lost."""
        self._count("lost" if self._open == "other" else self._open, self._advance(time))
        self._open = then

    def _advance(self, time: float) -> float:
        """Seconds from the end of the accounted time to `time`, which becomes its end; 0 if it is not later."""
        if self._until is None:
            self._until = time
        seconds = time - self._until
        if seconds > 0 or seconds < -CLOCK_STEP_SECONDS:
            self._until = time
        return max(0.0, seconds)

    def _count(self, name: TimeClass, seconds: float) -> None:
        """Count seconds that are not part of a step; those of the loop belong to the step before them."""
        spent = self._charge(name, seconds)
        if name in {"detection", "restart"}:
            self._blame(seconds)
        newest = self._newest
        if self._open == "other" and newest is not None and name in self._repeated:
            newest.add(name, spent)

    def _blame(self, seconds: float) -> None:
        """Add seconds to the cause of the failure that the run recovers from, if that is known."""
        if self._failure and seconds:
            self._by_cause[self._failure] = self._by_cause.get(self._failure, 0.0) + seconds

    def _charge(self, name: TimeClass, seconds: float) -> Spent:
        """Add seconds to a class, at the price of the present driver."""
        is_paid = name not in UNPAID
        if is_paid and self._price is None:
            self._unpriced_seconds += seconds
        price = 0.0 if self._price is None else self._price + self._workers * self._worker_price
        spent = Spent(seconds, seconds / SECONDS_PER_HOUR * price if is_paid else 0.0)
        self._counted[name] += spent
        return spent

    @property
    def _newest(self) -> StepGroup | None:
        """The group of the newest step."""
        groups = self._unsaved or self._saved
        return groups[-1] if groups else None

    def _commit(self, step: int) -> None:
        """A checkpoint has the steps up to this one."""
        saved = [group for group in self._unsaved if group.last <= step]
        if saved:
            self._saved.append(saved[0].merged(*saved[1:]))
            del self._unsaved[: len(saved)]
        if len(self._saved) > _MAX_SAVED:
            self._saved[:2] = [self._saved[0].merged(self._saved[1])]

    def _take_back(self, step: int) -> None:
        """The run continues from this step: the time of the later ones is lost."""
        for groups in (self._unsaved, self._saved):
            while groups and groups[-1].last > step:
                group = groups.pop()
                kept = group.up_to(step) if group.first <= step else None
                for name, spent in group.spent.items():
                    repeated = spent - (kept.spent[name] if kept else NOTHING)
                    self._repeated[name] += repeated
                    self._blame(repeated.seconds)
                if kept is not None:
                    groups.append(kept)


def _fewest_workers(event: RunStarted) -> int:
    """With how many workers an elastic run begins at least."""
    scale = event.settings.get("scale", {})
    return int(scale.get("min_workers") or scale.get("workers", 1))


def _spent(step: Step, gap: float) -> dict[TimeClass, float]:
    """What the time of a step was spent on; at most the `gap` since the accounted time, of which each class gets its share."""
    computed = step.forward_seconds + step.backward_seconds + step.optimizer_seconds
    waited = step.communication_seconds
    if waited is None:
        waited = _estimated_wait(step)
        computed -= waited
    spent: dict[TimeClass, float] = {
        "productive": _within(computed, gap),
        "data": _within(step.data_seconds, gap),
        "communication": _within(waited, gap),
        "checkpoint": _within(step.checkpoint_seconds, gap),
    }
    measured = sum(spent.values())
    spent["other"] = max(0.0, _within(step.seconds, gap) - measured)
    if measured > gap:
        return {name: seconds * gap / measured for name, seconds in spent.items()}
    return spent


def _estimated_wait(step: Step) -> float:
    """The part of the backward pass in which rank 0 waited for a rank that was slower before it."""
    slowest = max(step.rank_seconds) - step.rank_seconds[0] if step.rank_seconds else 0.0
    return _within(slowest, max(0.0, step.backward_seconds))


def _within(seconds: float, limit: float) -> float:
    """A measured time, from 0 to the limit."""
    return min(max(0.0, seconds), limit)
