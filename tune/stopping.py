"""When a search ends before all its trials have been tried, and which results are none. Imports no Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.spec.section import nearest
from observability.objective_metrics import is_better
from training.config.schema import ScaleSettings
from training.errors import SettingsError, TrainingFailedError
from tune.events import TrialEnded
from tune.history import SECONDS, SearchHistory, TrialHistory
from tune.settings import SearchSettings, StopSettings

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Why a search ends.

    Attributes:
        status: `done`, `failed` if its trials fail, or `interrupted` if somebody asked it to stop.
        reason: a sentence for people.
    """

    status: Literal["done", "failed", "interrupted"]
    reason: str


class NotReportedError(SettingsError):
    """An objective of the search is none of the metrics that a trial reports."""


def ending_of(history: SearchHistory, search: SearchSettings, scale: ScaleSettings) -> Ending | None:
    """Why the search ends now; None if it goes on.

    Args:
        history: the search so far, with its objectives.
        search: its settings.
        scale: of the trials.
    """
    stop = search.stop
    [metric, mode], *_ = history.objectives.items()
    reason = (
        _target(history, stop, metric, mode)
        or _compute(history, search, scale)
        or _cost(history, stop)
        or _plateau(history, stop, metric, mode)
    )
    return Ending(status="done", reason=reason) if reason else _failures(history, stop)


def ending_of_all(history: SearchHistory) -> Ending:
    """The ending of a search whose trials have all ended: it has failed if all of them have."""
    failed = _in_order_of_end(history, failed=True)
    if not failed or len(failed) < len(history.trials):
        return Ending(status="done", reason="all trials have ended")
    last = failed[-1].ended
    assert last is not None
    return Ending(status="failed", reason=f"every trial has failed, last {last.trial}: {_headline(last)}")


def ending_of_failure(message: str, history: SearchHistory) -> Ending | None:
    """Why the search ends after a trial has failed in a way that all share: it lacks an objective. None if others may do better.

    Args:
        message: of the trial.
        history: the search so far. Once a trial has reported, another one without the metric has an objective of its own.
    """
    if any(trial.reports for trial in history.trials.values()):
        return None
    return Ending(status="failed", reason=message)


def check_result(result: Mapping[str, Any], objectives: Mapping[str, str]) -> None:
    """Refuse a result that cannot be compared. A trial calls it before it reports.

    Args:
        result: metrics and other values by name.
        objectives: the metrics to optimize.

    Raises:
        NotReportedError: an objective is not reported; names those that are, and the nearest.
        TrainingFailedError: an objective is NaN or infinite: this trial has failed.
    """
    for metric in objectives:
        if metric not in result:
            reported = {name for name in result if name.startswith("validation_") or name in {SECONDS, "parameters"}}
            said = f"search.objectives.{metric}: the trials report no such metric, but {', '.join(sorted(reported)) or 'none'}"
            hint = nearest(metric, reported) if reported else ""
            raise NotReportedError(f"{said}; {hint}" if hint else said)
        value = result[metric]
        if not math.isfinite(value):
            raise TrainingFailedError(
                f"{metric} is {value} after epoch {result['epoch']}, which cannot be compared with other trials",
                remedy="the values of this trial may be too far out: narrow the axes, e.g. of optimizer.learning_rate",
            )


def _target(history: SearchHistory, stop: StopSettings, metric: str, mode: str) -> str:
    if stop.target is None:
        return ""
    for trial in history.ranked()[:1]:
        best = trial.best(metric, mode)
        if best >= stop.target if mode == "max" else best <= stop.target:
            return f"{trial.id} has reached the target: {metric} {best:g}, target {stop.target:g}"
    return ""


def _compute(history: SearchHistory, search: SearchSettings, scale: ScaleSettings) -> str:
    if search.stop.gpu_hours is None:
        return ""
    kind, per_worker = ("GPU", search.gpus_per_worker) if scale.gpu else ("CPU", float(scale.cpus_per_worker))
    spent = history.worker_seconds / _SECONDS_PER_HOUR * per_worker
    if spent < search.stop.gpu_hours:
        return ""
    return f"the trials have used {spent:.3g} {kind}-hours of {search.stop.gpu_hours:g}"


def _cost(history: SearchHistory, stop: StopSettings) -> str:
    if stop.dollars is None:
        return ""
    assert stop.dollars_per_worker_hour is not None
    spent = history.worker_seconds / _SECONDS_PER_HOUR * stop.dollars_per_worker_hour
    return "" if spent < stop.dollars else f"the trials have cost ${spent:.2f} of ${stop.dollars:g}"


def _plateau(history: SearchHistory, stop: StopSettings, metric: str, mode: str) -> str:
    """Ended trials in a row that are no better than what was known; a better one that still runs breaks the row."""
    if stop.plateau_trials is None:
        return ""
    best, leader, row, is_max = math.nan, "", 0, mode == "max"
    for trial in _in_order_of_end(history):
        value = trial.best(metric, mode)
        if math.isnan(value):
            continue
        if is_better(value, best, higher_is_better=is_max):
            best, leader, row = value, trial.id, 0
        else:
            row += 1
    running = (trial for trial in history.trials.values() if trial.ended is None)
    if row < stop.plateau_trials or any(
        is_better(trial.best(metric, mode), best, higher_is_better=is_max) for trial in running
    ):
        return ""
    return f"no better trial among the last {row} than {leader}: {metric} {best:g}"


def _failures(history: SearchHistory, stop: StopSettings) -> Ending | None:
    since = history.started[-1].time
    failed = [trial for trial in _in_order_of_end(history, failed=True) if trial.ended and trial.ended.time >= since]
    if len(failed) < stop.failures:
        return None
    last = failed[-1]
    assert last.ended is not None
    count = "1 trial has" if len(failed) == 1 else f"{len(failed)} trials have"
    return Ending(
        status="failed",
        reason=f"{count} failed (search.stop.failures={stop.failures}), last {last.id}: {_headline(last.ended)}",
    )


def _headline(ended: TrialEnded) -> str:
    return ended.message.partition("\n")[0]


def _in_order_of_end(history: SearchHistory, *, failed: bool = False) -> list[TrialHistory]:
    """The trials that have ended, those that failed or the others."""
    ended = [trial for trial in history.trials.values() if trial.ended and (trial.status == "failed") is failed]
    return sorted(ended, key=lambda trial: trial.ended.time if trial.ended else 0.0)
