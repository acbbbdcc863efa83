"""Progress of a hyperparameter search, from the metrics of its driver; pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite, nan
from typing import Any, NamedTuple

PLANNED = "ray_rtp_search_planned_trials"
TRIALS = "ray_rtp_search_trials"
BEST = "ray_rtp_search_best"
LEFT = "ray_rtp_search_time_left_seconds"
NEWEST = "ray_rtp_search_last_evaluation_timestamp_seconds"
GAUGES = (PLANNED, TRIALS, BEST, LEFT, NEWEST)
"""Gauges of a search, as Ray exports those of `observability.metrics.inventory`."""

LABELS = ("status", "metric")
"""Labels in which the series of one search differ."""

Series = tuple[Mapping[str, str], float]
"""Labels and value of a series; labels that are not from the run are those of `platform_charts.objects.monitoring`."""

_KIND_LABEL, _KIND = "ray-train-platform/kind", "search"
_RUNNING = re.compile(r", \d+ running")


class Search(NamedTuple):
    """A search as its driver reports it.

    Attributes:
        planned: trials of the whole search.
        trials: number of trials by status: running, done, stopped, failed.
        metric: name of the first objective.
        best: its best value; NaN before the first result.
        newest: Unix time of the newest evaluation, or of the start before it.
        seconds_left: the remaining time; NaN if unknown.
    """

    planned: float
    trials: Mapping[str, float]
    metric: str
    best: float
    newest: float
    seconds_left: float

    @property
    def is_valid(self) -> bool:
        """Whether its values make sense."""
        return all(isfinite(value) and value >= 0 for value in (self.planned, *self.trials.values()))

    def progress(self) -> str:
        """E.g. `9/16 trials, 4 running, 1 failed, validation accuracy 0.9750`."""
        ended = sum(count for status, count in self.trials.items() if status != "running")
        parts = [f"{ended:.0f}/{self.planned:.0f} trials", f"{self.trials.get('running', 0):.0f} running"]
        if failed := self.trials.get("failed"):
            parts.append(f"{failed:.0f} failed")
        if isfinite(self.best):
            # As `observability.objective_metrics.Metric.text`; nobody here knows which metrics are ratios.
            value = f"{self.best:.4f}" if 1e-3 <= abs(self.best) < 10 else f"{self.best:.4g}"
            parts.append(f"{self.metric.replace('_', ' ')} {value}")
        return ", ".join(parts)


def search_of(series: Iterable[Series]) -> Search | None:
    """The search of a driver's series; None if they are not those of a search."""
    found: dict[str, list[Series]] = {name: [] for name in GAUGES}
    for labels, value in series:
        found.get(labels.get("__name__", ""), []).append((labels, value))
    if not (found[PLANNED] and found[TRIALS] and found[NEWEST]):
        return None
    # Ray exports no NaN, which is a value that is not known.
    [(best_labels, best), *_] = found[BEST] or [({}, nan)]
    [(_, left), *_] = found[LEFT] or [({}, nan)]
    return Search(
        planned=found[PLANNED][0][1],
        trials={labels.get("status", ""): count for labels, count in found[TRIALS]},
        metric=best_labels.get("metric", ""),
        best=best,
        newest=found[NEWEST][0][1],
        seconds_left=left,
    )


def is_search(job: Mapping[str, Any]) -> bool:
    """Whether a RayJob is a search, whose trials export metrics of runs."""
    labels: Mapping[str, str] = job["metadata"].get("labels") or {}
    return labels.get(_KIND_LABEL) == _KIND


def without_running(progress: str | None) -> str | None:
    """The progress of a job that does not run."""
    return None if progress is None else _RUNNING.sub("", progress)
