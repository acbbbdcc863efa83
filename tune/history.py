"""The state of a search, folded from its log: what a driver that continues it, the table and the report know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from observability.event_log import Event
from observability.objective_metrics import ranked
from training.config.schema import OptionValue
from tune.events import (
    SearchEnded,
    SearchLogReader,
    SearchNotice,
    SearchStarted,
    TrialAdded,
    TrialEnded,
    TrialExploited,
    TrialReported,
    TrialStatus,
)
from tune.space.settings import AxisSettings
from tune.space.space import Space

SECONDS = "seconds"
"""Objective: worker-seconds of a trial."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Epochs that some weights were trained with the same values.

    Attributes:
        trial: who trained them.
        epoch: epochs before them.
        values: the values.
    """

    trial: str
    epoch: int
    values: Mapping[str, OptionValue]


@dataclass(kw_only=True)
class TrialHistory:
    """One trial.

    Attributes:
        id: its name, e.g. `t003`; the name of its run's folder too.
        first_values: the values it began with.
        values: the values it has now; others only after an exploitation.
        added: Unix time.
        reports: its evaluations, oldest first, at most one per epoch; an exploitation takes away those after its epoch.
        exploits: the exploitations, oldest first.
        schedule: how its weights were trained, oldest first; after an exploitation it begins with the donor's.
        worker_seconds: seconds of all its workers so far, also for epochs that an exploitation or a restart took away.
        ended: how it ended; None while it has not.
    """

    id: str
    first_values: Mapping[str, OptionValue]
    values: Mapping[str, OptionValue]
    added: float
    reports: list[TrialReported] = field(default_factory=list)
    exploits: list[TrialExploited] = field(default_factory=list)
    schedule: list[Stretch] = field(default_factory=list)
    worker_seconds: float = 0.0
    ended: TrialEnded | None = None

    @property
    def status(self) -> TrialStatus | None:
        """How it ended; None while it has not."""
        return None if self.ended is None else self.ended.status

    @property
    def epoch(self) -> int:
        """Epochs of the newest evaluation, or of the checkpoint that it has copied since; 0 before the first."""
        return max(
            self.reports[-1].epoch if self.reports else 0,
            self.exploits[-1].epoch if self.exploits else 0,
        )

    @property
    def own_reports(self) -> list[TrialReported]:
        """The evaluations of the weights that it has now, since the last exploitation."""
        since = self.exploits[-1].epoch if self.exploits else 0
        return [report for report in self.reports if report.epoch > since]

    def value(self, metric: str) -> float:
        """The newest value of a metric or of `seconds`; NaN before the first evaluation."""
        if metric == SECONDS:
            return self.worker_seconds
        return self.reports[-1].metrics.get(metric, math.nan) if self.reports else math.nan

    def best(self, metric: str, mode: str) -> float:
        """The best value of a metric so far, or its `seconds`; NaN before the first evaluation.

        After an exploitation only evaluations since then count: the weights of those before are gone.
        """
        if metric == SECONDS:
            return self.worker_seconds if self.reports else math.nan
        values = [report.metrics.get(metric, math.nan) for report in self.own_reports]
        first = next(iter(ranked(dict(enumerate(values)), higher_is_better=mode == "max")), None)
        return math.nan if first is None else values[first]


@dataclass(kw_only=True)
class SearchHistory:
    """A search.

    Attributes:
        started: its starts, oldest first; the newest one has the settings.
        trials: its trials by id, in the order they were added.
        notices: messages to the user, oldest first.
        last_time: Unix time of the newest event.
        ended: how the newest driver ended it; None while it runs, or if it was killed.
    """

    started: list[SearchStarted] = field(default_factory=list)
    trials: dict[str, TrialHistory] = field(default_factory=dict)
    notices: list[SearchNotice] = field(default_factory=list)
    last_time: float = 0.0
    ended: SearchEnded | None = None
    _earlier_seconds: float = 0.0

    @classmethod
    def read(cls, directory: Path) -> SearchHistory:
        """The history in a search's folder; empty if there is no log."""
        history = cls()
        history.extend(SearchLogReader(directory).read_new())
        return history

    def copy(self) -> SearchHistory:
        """Another history of the same events, to be extended on its own."""
        return deepcopy(self)

    def extend(self, events: Iterable[Event]) -> None:
        """Add the next events of the log."""
        for event in events:
            self._add(event)

    def _add(self, event: Event) -> None:
        match event:
            case SearchStarted():
                self._earlier_seconds = self.seconds()
                self.started.append(event)
                self.ended = None
            case TrialAdded():
                if event.trial not in self.trials:
                    self.trials[event.trial] = _new_trial(event)
            case TrialReported() | TrialExploited() | TrialEnded():
                # The line that added it is missing if a full disk cut it off.
                if event.trial in self.trials:
                    self._add_to(self.trials[event.trial], event)
            case SearchNotice():
                self.notices.append(event)
            case SearchEnded():
                self.ended = event
        self.last_time = event.time

    def _add_to(self, trial: TrialHistory, event: TrialReported | TrialExploited | TrialEnded) -> None:
        match event:
            case TrialReported():
                if event.epoch > trial.epoch:
                    trial.reports.append(event)
                trial.worker_seconds = max(trial.worker_seconds, event.worker_seconds)
            case TrialExploited():
                donor = self.trials.get(event.donor)
                inherited = [one for one in donor.schedule if one.epoch < event.epoch] if donor else []
                own = Stretch(trial=trial.id, epoch=event.epoch, values=event.values)
                trial.schedule = [*inherited, own]
                trial.values = event.values
                trial.exploits.append(event)
                trial.reports = [report for report in trial.reports if report.epoch <= event.epoch]
            case TrialEnded():
                trial.ended = event
                trial.worker_seconds = max(trial.worker_seconds, event.worker_seconds)

    @property
    def name(self) -> str:
        """Name of the search; empty before its first start."""
        return self.started[-1].search if self.started else ""

    def status(self, *, is_running: bool) -> str:
        """`running`, how the newest driver ended the search, or `killed` where it ended without a record."""
        return "running" if is_running else self.ended.status if self.ended else "killed"

    def seconds(self, *, now: float | None = None) -> float:
        """Wall time of all its drivers, without the pauses between them; counts up to `now` while it has not ended."""
        if not self.started:
            return 0.0
        end = self.last_time if now is None or self.ended else now
        return self._earlier_seconds + end - self.started[-1].time

    @property
    def space(self) -> Space:
        """The axes of the newest start."""
        recorded = self.started[-1].settings.get("space", {}) if self.started else {}
        return Space.of({key: AxisSettings.recorded(axis) for key, axis in recorded.items()})

    @property
    def objectives(self) -> Mapping[str, str]:
        """The metrics to optimize with max or min, the most important first."""
        return self.started[-1].objectives if self.started else {}

    @property
    def epochs(self) -> int:
        """`loop.epochs` of the settings that trials share; 0 if they do not say."""
        return self.started[-1].shared.get("loop", {}).get("epochs") or 0 if self.started else 0

    def epochs_of(self, trial: TrialHistory) -> int:
        """Epochs that a trial trains if nothing stops it; 0 if the settings do not say."""
        own = trial.values.get("loop.epochs")
        return own if isinstance(own, int) else self.epochs

    @property
    def planned(self) -> int:
        """Trials of the whole search; a grid may have fewer combinations than the settings allow."""
        settings = self.started[-1].settings if self.started else {}
        trials = int(settings.get("trials", len(self.trials)))
        return trials if settings.get("algorithm") != "grid" else len(list(islice(self.space.grid(), trials)))

    def ranked(self) -> list[TrialHistory]:
        """The trials with a result that have not failed, the best first by the first objective; its best epoch counts."""
        if not self.objectives:
            return []
        [metric, mode], *_ = self.objectives.items()
        values = {name: trial.best(metric, mode) for name, trial in self.trials.items() if trial.status != "failed"}
        return [self.trials[name] for name in ranked(values, higher_is_better=mode == "max")]

    @property
    def worker_seconds(self) -> float:
        """Seconds of all workers of all trials."""
        return sum(trial.worker_seconds for trial in self.trials.values())


def _new_trial(event: TrialAdded) -> TrialHistory:
    return TrialHistory(
        id=event.trial,
        first_values=event.values,
        values=event.values,
        added=event.time,
        schedule=[Stretch(trial=event.trial, epoch=0, values=event.values)],
    )
