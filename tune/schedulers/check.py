"""Refuses schedulers that can never work with the rest of the settings: that would stop nothing, or have nothing to change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec

from training.checkpoint.changes import is_changeable
from training.errors import SettingsError
from tune.settings import (
    AshaSettings,
    HyperbandSettings,
    MedianSettings,
    Pb2Settings,
    PbtSettings,
    SearchSettings,
)
from tune.space.axes import Axis, Choice, Constant, Continuous, Integers
from tune.space.space import Space

_WHERE = "search.scheduler"


def check_scheduler(settings: SearchSettings, space: Space, *, epochs: int, evaluate_every: int = 1) -> None:
    """Refuse a scheduler that can never stop or change a trial.

    Args:
        settings: the `search` section.
        space: its axes.
        epochs: `loop.epochs` of the trials.
        evaluate_every: their `loop.evaluate_every`.

    Raises:
        SettingsError: names the setting, the rule and a value that fits.
    """
    match settings.scheduler:
        case AshaSettings() as asha:
            _check_asha(asha, epochs)
        case HyperbandSettings() as hyperband:
            _check_hyperband(hyperband, epochs, settings.trials)
        case MedianSettings() as median:
            _check_median(median, epochs, settings.trials)
        case PbtSettings() | Pb2Settings() as population:
            _check_population(population, space, epochs)
    name = settings.scheduler.name
    if name != "none" and evaluate_every >= epochs:
        raise SettingsError(
            f"loop.evaluate_every={evaluate_every}: all trials train loop.epochs={epochs}, so {name} would see each one only at its end",
            remedy=f"at most {epochs - 1}, or search.scheduler.name=none",
        )


def bandit_axes(space: Space) -> Mapping[str, Continuous | Integers]:
    """The axes that PB2's Gaussian process chooses: changeable numbers that every trial has."""
    return {
        key: axis
        for key, axis in space.axes.items()
        if isinstance(axis, Continuous | Integers) and not axis.when and is_changeable(key)
    }


def _check_asha(asha: AshaSettings, epochs: int) -> None:
    if asha.grace_epochs >= epochs:
        raise SettingsError(
            f"{_WHERE}.grace_epochs={asha.grace_epochs}: all trials train loop.epochs={epochs}, so asha would stop none early",
            remedy="lower it, or set search.scheduler.name=none" if epochs == 1 else f"at most {epochs - 1}",
        )
    last = asha.grace_epochs * asha.reduction_factor ** (asha.brackets - 1)
    if last >= epochs:
        fitting = math.ceil(math.log(epochs / asha.grace_epochs, asha.reduction_factor) - 1e-9)
        raise SettingsError(
            f"{_WHERE}.brackets={asha.brackets}: the last one has its first rung after {last} epochs and loop.epochs={epochs}, "
            "so it would stop none early",
            remedy=f"at most {fitting}",
        )


def _check_hyperband(hyperband: HyperbandSettings, epochs: int, trials: int) -> None:
    factor = hyperband.reduction_factor
    if epochs < factor:
        raise SettingsError(
            f"{_WHERE}.reduction_factor={factor}: the first rung is at 1/{factor} of loop.epochs={epochs}, before the first epoch ends",
            remedy=f"lower it to {epochs}" if epochs > 1 else "raise loop.epochs, or set search.scheduler.name=none",
        )
    # As ray/tune/schedulers/hyperband.py sizes them: the trials of the first bracket train to the end.
    whole = round(math.log(epochs) / math.log(factor)) + 1
    kept = math.ceil(math.ceil(whole / 2 * factor) / factor)
    if trials <= whole + kept:
        raise SettingsError(
            f"search.trials={trials}: hyperband trains the first {whole} trials to the end and keeps {kept} of the next, so it "
            "would stop none",
            remedy=f"at least {whole + kept + 1} trials, or search.scheduler.name=asha",
        )


def _check_median(median: MedianSettings, epochs: int, trials: int) -> None:
    if median.grace_epochs >= epochs:
        raise SettingsError(
            f"{_WHERE}.grace_epochs={median.grace_epochs}: all trials train loop.epochs={epochs}, so none would be stopped early",
            remedy="set search.scheduler.name=none" if epochs == 1 else f"at most {epochs - 1}",
        )
    if median.trials_to_compare >= trials:
        raise SettingsError(
            f"{_WHERE}.trials_to_compare={median.trials_to_compare}: search.trials={trials} has at most {trials - 1} others",
            remedy=f"at least {median.trials_to_compare + 1} trials",
        )


def _check_population(population: PbtSettings | Pb2Settings, space: Space, epochs: int) -> None:
    if population.every_epochs >= epochs:
        raise SettingsError(
            f"{_WHERE}.every_epochs={population.every_epochs}: a trial has ended after loop.epochs={epochs}, so none would be compared",
            remedy="raise loop.epochs to at least 2" if epochs == 1 else f"at most {epochs - 1}",
        )
    changeable = [key for key, axis in space.axes.items() if is_changeable(key) and _varies(axis)]
    if not changeable:
        raise SettingsError(
            f"{_WHERE}.name={population.name} changes settings between two checkpoints of a trial, and none of the axes can: "
            f"{', '.join(space.axes)}",
            remedy="add an axis such as optimizer.learning_rate, or choose another scheduler",
        )
    for key, axis in space.axes.items():
        above = next((one.key for one in axis.when if one.key in changeable), None)
        if above is not None and not is_changeable(key):
            raise SettingsError(
                f"search.space.{key}: applies only with certain values of {above}, which {population.name} changes during a trial, "
                f"while {key} keeps its value",
                remedy=f"remove the condition, or make {above} a constant",
            )
    if isinstance(population, Pb2Settings):
        _check_bandit(space)


def _check_bandit(space: Space) -> None:
    if find_spec("sklearn") is None:
        raise SettingsError(
            f"{_WHERE}.name=pb2 needs scikit-learn, which is not installed",
            remedy="install scikit-learn, or set search.scheduler.name=pbt",
        )
    if not bandit_axes(space):
        raise SettingsError(
            f"{_WHERE}.name=pb2 chooses numbers between two bounds that every trial has, and there is no such axis that can change: "
            f"{', '.join(space.axes)}",
            remedy="add one without `when`, e.g. optimizer.learning_rate: {log_uniform: [1.0e-4, 1.0e-1]}, or choose pbt",
        )


def _varies(axis: Axis) -> bool:
    return not isinstance(axis, Constant) and not (isinstance(axis, Choice) and len(axis.values) == 1)
