"""What a search optimizes, as far as it is known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from training.config.schema import TrainingSettings
from training.errors import SettingsError
from training.factories import is_import_path, suggest
from training.objectives.registry import BEST_PREFIX, OBJECTIVES
from tune.settings import Mode, SearchSettings

OTHERS = ("seconds", "parameters")
"""Objectives besides the metrics of the validation split: worker-seconds of a trial, and parameters of its model."""


def objectives_of(search: SearchSettings, shared: TrainingSettings) -> dict[str, Mode]:
    """The metrics to optimize with max or min, the most important first.

    Without any in the settings it is the metric that ranks the checkpoints; of an objective of the user's own, whose module is not imported
    here, the loss.

    Raises:
        SettingsError: of an objective of the user's own, the metric that ranks the checkpoints is named, but not whether more is better; a
            built-in objective does not report a metric, or it is to be made worse.
    """
    name = shared.objective.name
    if search.objectives:
        check_reported(search.objectives, name)
        return dict(search.objectives)
    if is_import_path(name):
        if (best := shared.checkpoint.best_metric) not in {None, f"{BEST_PREFIX}loss"}:
            raise SettingsError(
                f"checkpoint.best_metric={best} ranks the checkpoints; whether more is better is not known of objective.name={name}",
                remedy=f"say so: search.objectives={{{best}: max}} or {{{best}: min}}",
            )
        return {f"{BEST_PREFIX}loss": "min"}
    best = shared.checkpoint.best_metric or f"{BEST_PREFIX}{OBJECTIVES.find(name).ranked_by}"
    return {best: _modes(name)[best]}


def check_reported(objectives: Mapping[str, Mode], name: str) -> None:
    """Refuse what an objective of ours does not report. What one of the user's own reports is known once a trial has.

    Args:
        objectives: metrics to optimize, with max or min.
        name: `objective.name` of some or all trials.

    Raises:
        SettingsError: it does not report a metric, or the metric is to be made worse.
    """
    if is_import_path(name):
        return
    modes = _modes(name)
    known = [*modes, *OTHERS]
    for metric, mode in objectives.items():
        if metric not in known:
            raise SettingsError(
                f"search.objectives.{metric}: objective {name} reports no such metric",
                remedy=f"{suggest(metric, known)}its metrics: {', '.join(known)}",
            )
        if mode != modes.get(metric, mode):
            better = "more" if modes[metric] == "max" else "less"
            raise SettingsError(
                f"search.objectives.{metric} = {mode}: {better} of it is better", remedy=f"{metric}: {modes[metric]}"
            )


def _modes(name: str) -> dict[str, Mode]:
    metrics = OBJECTIVES.find(name).metrics
    return {f"{BEST_PREFIX}{metric.name}": "max" if metric.higher_is_better else "min" for metric in metrics}
