"""What the report's tables and plots show: the numbers, without any drawing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from observability.objective_metrics import Metric
from tune.events import TrialReported
from tune.history import SECONDS, SearchHistory, TrialHistory
from tune.settings import POPULATION
from tune.space.axes import Axis
from tune.table import trial_status
from tune.texts import MetricTexts

STOPPING = frozenset({"asha", "hyperband", "median"})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The search after an evaluation or the end of a trial.

    Attributes:
        worker_seconds: seconds of all workers of all trials until then.
        trial: whose evaluation or end it was.
        value: value of the first objective; NaN if it has none.
    """

    worker_seconds: float
    trial: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A trial continued from a checkpoint of another one after `epoch` epochs."""

    trial: str
    donor: str
    epoch: int


@dataclass(frozen=True, kw_only=True)
class SearchData:
    """A search that has started, as its report sees it.

    Attributes:
        history: the search.
        texts: how its metrics are written.
        is_running: whether a driver runs.
    """

    history: SearchHistory
    texts: MetricTexts
    is_running: bool

    @cached_property
    def trials(self) -> list[TrialHistory]:
        """The trials in the order they were added."""
        return list(self.history.trials.values())

    def status(self, trial: TrialHistory) -> str:
        """`running`, `interrupted`, `done`, `stopped` or `failed`."""
        return trial_status(trial, is_running=self.is_running)

    @cached_property
    def objectives(self) -> list[tuple[str, str]]:
        """Names and modes, the most important first."""
        return list(self.history.objectives.items())

    @property
    def objective(self) -> tuple[str, str]:
        """Name and mode of the first objective."""
        return self.objectives[0]

    @cached_property
    def metric(self) -> Metric:
        """The first objective."""
        return self.texts.find(self.objective[0])

    @cached_property
    def ranked(self) -> list[TrialHistory]:
        """The trials with a result that have not failed, the best first."""
        return self.history.ranked()

    @property
    def best(self) -> TrialHistory | None:
        """The best trial; None before the first result."""
        return self.ranked[0] if self.ranked else None

    def by_rank(self) -> list[TrialHistory]:
        """All trials: the best first, of several objectives the Pareto front, and those without a result last."""
        front = self.front() if len(self.objectives) > 1 else []
        found = {trial.id: trial for trial in [*front, *self.ranked, *self.trials]}
        return list(found.values())

    def best_report(self, trial: TrialHistory) -> TrialReported | None:
        """The evaluation with a trial's best value, the earliest of equals; the last one for an objective like its seconds."""
        value = trial.best(*self.objective)
        found = (one for one in trial.own_reports if one.metrics.get(self.objective[0]) == value)
        return next(found, trial.reports[-1] if trial.reports else None)

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """The `search` section."""
        return self.history.started[-1].settings

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        """The axes of the space by setting."""
        return self.history.space.axes

    @property
    def scheduler(self) -> str:
        """Name of the scheduler."""
        section = self.settings.get("scheduler")
        return str(section.get("name")) if isinstance(section, Mapping) else "none"

    @property
    def is_population(self) -> bool:
        """Whether trials copy each other."""
        return self.scheduler in POPULATION

    @property
    def price(self) -> float | None:
        """Dollars per hour of one worker; None if the settings do not say."""
        stop = self.settings.get("stop")
        return stop.get("dollars_per_worker_hour") if isinstance(stop, Mapping) else None

    def dollars(self, worker_seconds: float) -> float | None:
        """Cost of workers; None without a price."""
        return None if self.price is None else self.price * worker_seconds / 3600

    @cached_property
    def epochs(self) -> int:
        """Epochs of the longest trial; if the settings do not say, of the longest so far."""
        planned = (self.history.epochs_of(trial) or trial.epoch for trial in self.trials)
        return max(planned, default=self.history.epochs)

    @cached_property
    def moments(self) -> list[Moment]:
        """All evaluations and ends, oldest first."""
        happened = sorted(self._happened(), key=lambda one: one[0])
        spent: dict[str, float] = {}
        total = 0.0
        found = []
        for _, trial, seconds, value in happened:
            total += max(0.0, seconds - spent.get(trial, 0.0))
            spent[trial] = max(seconds, spent.get(trial, 0.0))
            found.append(Moment(worker_seconds=total, trial=trial, value=value))
        return found

    def _happened(self) -> Iterator[tuple[float, str, float, float]]:
        """Time, trial, its worker-seconds and the objective's value."""
        metric = self.objective[0]
        for trial in self.trials:
            for report in trial.reports:
                yield report.time, trial.id, report.worker_seconds, report.metrics.get(metric, math.nan)
            if trial.ended is not None:
                # The time that a trial takes is known at its end.
                cost = trial.worker_seconds if metric == SECONDS else math.nan
                yield trial.ended.time, trial.id, trial.worker_seconds, cost

    def improvements(self) -> list[Moment]:
        """The evaluations that were the best so far, oldest first; trials that failed do not count."""
        metric = Metric(name=self.objective[0], higher_is_better=self.objective[1] == "max")
        best: list[Moment] = []
        for moment in self.moments:
            counts = self.history.trials[moment.trial].status != "failed" and not math.isnan(moment.value)
            if counts and (not best or metric.better(moment.value, best[-1].value)):
                best.append(moment)
        return best

    def survival(self) -> list[int]:
        """Trials that trained at least 1, 2, … epochs, for each epoch of a whole trial."""
        return [sum(trial.epoch >= epoch for trial in self.trials) for epoch in range(1, self.epochs + 1)]

    def rungs(self) -> list[int]:
        """Epochs at which ASHA's first bracket compares trials (`_Bracket` in ray/tune/schedulers/async_hyperband.py); else none."""
        section = self.settings.get("scheduler")
        if self.scheduler != "asha" or not isinstance(section, Mapping):
            return []
        rungs, epoch = [], int(section.get("grace_epochs", 1))
        while epoch < self.epochs:
            rungs.append(epoch)
            epoch *= int(section.get("reduction_factor", 3))
        return rungs

    def copies(self) -> list[Copied]:
        """The exploitations, oldest first."""
        events = sorted((one for trial in self.trials for one in trial.exploits), key=lambda one: one.time)
        return [Copied(trial=one.trial, donor=one.donor, epoch=one.epoch) for one in events]

    def ancestry(self, trial: TrialHistory) -> list[tuple[str, int, int]]:
        """Who trained a trial's weights, from and to which epoch, oldest first."""
        ends = [one.epoch for one in trial.schedule[1:]] + [trial.epoch]
        return [(one.trial, one.epoch, end) for one, end in zip(trial.schedule, ends, strict=True)]

    def values(self, trial: TrialHistory) -> list[tuple[int, float]]:
        """Epoch and first objective of a trial's evaluations, if finite."""
        name = self.objective[0]
        found = [
            (one.epoch, one.worker_seconds if name == SECONDS else one.metrics.get(name, math.nan))
            for one in trial.reports
        ]
        return [(epoch, value) for epoch, value in found if math.isfinite(value)]

    def curve(self, trial: TrialHistory) -> list[tuple[int, float]]:
        """Epoch and first objective of the weights that a trial has now: before a copy those of its donor."""
        return [
            point
            for owner, start, end in self.ancestry(trial)
            if owner in self.history.trials
            for point in self.values(self.history.trials[owner])
            if start < point[0] <= end
        ]

    def steps(self, trial: TrialHistory, key: str) -> list[tuple[int, int, object]]:
        """From and to which epoch a trial's weights were trained with which value of a setting."""
        ends = [one.epoch for one in trial.schedule[1:]] + [trial.epoch]
        return [
            (one.epoch, end, one.values[key])
            for one, end in zip(trial.schedule, ends, strict=True)
            if key in one.values
        ]

    def perturbed(self) -> list[str]:
        """The settings that an exploitation changed."""
        changed = {
            key: None
            for trial in self.trials
            for before, after in pairwise(trial.schedule)
            for key in after.values
            if before.values.get(key) != after.values[key]
        }
        return [key for key in self.axes if key in changed]

    def point(self, trial: TrialHistory) -> tuple[float, ...]:
        """The newest value of each objective: of one and the same model."""
        return tuple(trial.value(metric) for metric, _ in self.objectives)

    def front(self) -> list[TrialHistory]:
        """The trials that no other beats or equals in every objective and beats in one: the Pareto front, by the first objective."""
        signs = [1.0 if mode == "max" else -1.0 for _, mode in self.objectives]
        points = {
            trial.id: tuple(sign * value for sign, value in zip(signs, self.point(trial), strict=True))
            for trial in self.trials
            if trial.status != "failed" and not any(map(math.isnan, self.point(trial)))
        }
        front = [key for key, point in points.items() if not any(_dominates(one, point) for one in points.values())]
        return sorted((self.history.trials[key] for key in front), key=lambda one: points[one.id], reverse=True)


def _dominates(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    return left != right and all(one >= other for one, other in zip(left, right, strict=True))
