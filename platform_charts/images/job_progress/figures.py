"""Progress and remaining time of a job, from the metrics of its run or search; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import ceil, floor, isfinite, nan
from typing import Any, NamedTuple

from .searches import LABELS, Search, Series, is_search, search_of, without_running

STEP = "ray_rtp_train_step"
PLANNED = "ray_rtp_train_planned_steps"
NEWEST = "ray_rtp_train_last_step_timestamp_seconds"
"""Gauges of a run, as Ray exports those of `observability.metrics.inventory`."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

_UNITS = ((10 * _MINUTE, _MINUTE), (_HOUR, 5 * _MINUTE), (12 * _HOUR, 15 * _MINUTE), (2 * _DAY, _HOUR))
"""Up to a number of seconds, the remaining time is rounded up to a multiple of another one; above, to 6 hours."""

_LONGEST = 1000 * _DAY
"""A run that would take longer stands still."""


class Run(NamedTuple):
    """A run as its rank 0 reports it.

    Attributes:
        step: steps done.
        planned_steps: steps of the whole run.
        newest: Unix time of the newest step, or of the start before the first one.
        steps_per_second: pace over the last minutes, evaluations and checkpoints included; None before the second scrape.
    """

    step: float
    planned_steps: float
    newest: float
    steps_per_second: float | None

    @property
    def is_valid(self) -> bool:
        """Whether its values make sense."""
        return isfinite(self.step) and self.step >= 0 and isfinite(self.planned_steps) and self.planned_steps >= 1

    @property
    def seconds_left(self) -> float:
        """The remaining time; NaN if unknown."""
        pace = self.steps_per_second
        if pace is None or not isfinite(pace) or pace <= 0:
            return nan
        return (self.planned_steps - self.step) / pace

    def progress(self) -> str:
        """E.g. `1,240/5,000 (24 %)`."""
        return progress(int(self.step), int(self.planned_steps))


Progressing = Run | Search


def newest_runs(gauges: Iterable[Series], *, slopes: Iterable[Series]) -> dict[tuple[str, str], Progressing]:
    """The run or search of each job, by its namespace and name.

    After a restart on another node, the series of the former rank 0 or driver stay until Prometheus marks them as stale.
    The process with the newest step or evaluation counts. The trials of a search are runs too, but the search counts.

    Args:
        gauges: series of `STEP`, `PLANNED` and `NEWEST`, and of `searches.GAUGES`.
        slopes: changes of `STEP` per second, with its labels.
    """
    processes: dict[frozenset[tuple[str, str]], list[Series]] = {}
    for labels, value in gauges:
        processes.setdefault(_process(labels), []).append((labels, value))
    paces = {_process(labels): value for labels, value in slopes}
    found: dict[tuple[str, str], Progressing] = {}
    for process, series in processes.items():
        labels = dict(process)
        one = search_of(series) or _run_of(series, pace=paces.get(process))
        if {"namespace", "training_job"} <= labels.keys() and one is not None and isfinite(one.newest):
            key = labels["namespace"], labels["training_job"]
            if key not in found or _rank(one) > _rank(found[key]):
                found[key] = one
    return found


def _rank(one: Progressing) -> tuple[bool, float]:
    return isinstance(one, Search), one.newest


def _run_of(series: Iterable[Series], *, pace: float | None) -> Run | None:
    values = {labels.get("__name__", ""): value for labels, value in series}
    if not {STEP, PLANNED, NEWEST} <= values.keys():
        return None
    return Run(values[STEP], values[PLANNED], values[NEWEST], pace)


def figures(
    job: Mapping[str, Any], run: Progressing | None, *, before: Mapping[str, str | None], is_known: bool
) -> dict[str, str | None]:
    """The columns `progress` and `time left` of a job; None for an empty one.

    Args:
        job: the RayJob.
        run: its run or search; None if it has no series.
        before: the columns now. A job that does not run keeps its progress, because it resumes from there.
        is_known: whether Prometheus has answered; a running job keeps its columns until then.
    """
    status, created = job.get("status") or {}, datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    is_running = status.get("jobDeploymentStatus") == "Running"
    kept = before["progress"] if is_running else without_running(before["progress"])
    if not is_known:
        return {"progress": kept, "time left": before["time left"] if is_running else None}
    # A deleted job may have had the same name, and the trials of a search are known before it.
    if run is None or run.newest < created.timestamp() or not run.is_valid or (isinstance(run, Run) and is_search(job)):
        return {"progress": kept, "time left": None}
    text, seconds = run.progress(), run.seconds_left
    return {
        "progress": text if is_running else without_running(text),
        "time left": time_left(seconds) if is_running and 0 < seconds < _LONGEST else None,
    }


def progress(step: int, planned: int) -> str:
    """E.g. `1,240/5,000 (24 %)`; the percentage is rounded down, so that 100 means done."""
    return f"{step:,}/{planned:,} ({floor(100 * step / planned)} %)"


def time_left(seconds: float) -> str:
    """E.g. `3h 15m`, rounded up so coarsely that it seldom changes."""
    unit = next((unit for longest, unit in _UNITS if seconds <= longest), 6 * _HOUR)
    minutes = ceil(seconds / unit) * unit // _MINUTE
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = ((days, "d"), (hours, "h"), (minutes, "m"))
    return " ".join(f"{count}{letter}" for count, letter in parts if count)


def _process(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What the series of one process have in common: every label but the name and those of a search's gauges."""
    return frozenset((name, value) for name, value in labels.items() if name not in {"__name__", *LABELS})
