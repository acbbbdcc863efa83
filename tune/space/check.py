"""Checks a search space against the settings that it varies, before anything is started.

Every bound and choice is tried in the settings of a trial, and so are random combinations, because a rule may need several settings: a
width that is a multiple of the heads. A search would otherwise find out in the middle of the night.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from infra.spec.section import did_you_mean
from infra.spec.yaml_text import inline
from training.config.schema import OptionValue, TrainingSettings
from training.errors import SettingsError
from tune.space.axes import Axis, Choice, Constant, Continuous, Integers, Values
from tune.space.space import RandomDraw, Space

_COMBINATIONS = 64
"""Random combinations to try; a rule that one in 20 trials breaks is missed with a probability of 4 %."""

_ORIGIN = "search.space"
"""Origin of a trial's values in the messages about its settings."""

_VARIABLE = ("model", "data", "objective", "optimizer", "ema", "schedule", "loop", "precision")
OWN_NAMES = frozenset({"model.options", "data.options", "objective.options"})
"""Settings whose keys depend on the model, dataset or objective."""

_SEED = "run.seed"
_SHARED = {
    "run.deterministic": "it changes which kernels compute a trial, not its hyperparameters",
    "run": "names and folders are the search's",
    "scale": "all trials have worker groups of one size, which they share",
    "checkpoint": "trials are saved alike, so that the search can be continued",
    "tracking": "all trials are recorded in one place",
    "metrics": "all trials are exported alike",
    "profile": "all trials are profiled alike, or none",
}


def check_space(space: Space, settings: Callable[[Values], TrainingSettings]) -> None:
    """Refuse a space with an axis of no setting, or with values that a trial cannot have.

    Args:
        space: the space.
        settings: makes the settings of a trial.

    Raises:
        SettingsError: names the axis, the value and the rule.
    """
    for key in space.axes:
        _check_key(key)
    settings({})
    for key, axis in space.axes.items():
        for value in axis.extremes:
            _try(settings, _values_with(space, key, value), about=key)
    draw = RandomDraw("check")
    for _ in range(_COMBINATIONS):
        _try(settings, space.draw(draw))


def _try(settings: Callable[[Values], TrainingSettings], values: Values, *, about: str = "") -> None:
    """Make the settings of a trial; a refusal begins with the axis that is refused, or with the one that is tried."""
    try:
        settings(values)
    except SettingsError as error:
        message = str(error.args[0]).removeprefix(f"{_ORIGIN}: ")
        if re.match(r"[\w.]*", message)[0].rstrip(".") in values:  # type: ignore[index]  # it always matches
            raise SettingsError(f"{_ORIGIN}.{message}", remedy=error.remedy) from error
        where = f"{_ORIGIN}.{about}" if about else _ORIGIN
        shown = ", ".join(f"{key}={inline(value)}" for key, value in values.items())
        several = (
            "restrict an axis to values that fit all others, or let it apply only `when` another has a certain value"
        )
        raise SettingsError(
            f"{where}: a trial may get {shown}, which is refused: {message}",
            remedy=several if len(values) > 1 else error.remedy,
        ) from error


def _check_key(key: str) -> None:
    """Refuse a key that names no setting, or one that all trials share."""
    section = key.partition(".")[0]
    where = f"search.space.{key}"
    if key != _SEED and (shared := _SHARED.get(key) or _SHARED.get(section)):
        raise SettingsError(f"{where}: cannot vary: {shared}", remedy=f"set it for all trials: {key}=…")
    if any(key.startswith(f"{owner}.") for owner in OWN_NAMES):
        return  # the settings of a trial know the options of its model, dataset and objective
    if key in OWN_NAMES:
        raise SettingsError(f"{where}: has settings of its own", remedy=f"name one of them: {key}.NAME")
    known = sorted(_keys())
    if key not in known:
        siblings = [one for one in known if one.startswith(f"{section}.")]
        listed = f"settings of {section}: {', '.join(siblings)}" if siblings else f"sections: {', '.join(_VARIABLE)}"
        raise SettingsError(f"{where}: no such setting", remedy=did_you_mean(key, known, cutoff=0.7) or listed)


def _keys() -> Iterator[str]:
    yield _SEED
    for section in _VARIABLE:
        model = TrainingSettings.model_fields[section].annotation
        assert model is not None
        for name in model.model_fields:
            if f"{section}.{name}" not in OWN_NAMES:
                yield f"{section}.{name}"


def _values_with(space: Space, key: str, value: OptionValue) -> Values:
    """Values of a trial in which one axis has this value, and the others what it needs, or else their first value."""
    wanted = {name: values[0] for name, values in space.needs(key).items()} | {key: value}

    def draw(name: str, axis: Choice | Integers | Continuous) -> OptionValue:
        return wanted[name] if name in wanted else axis.extremes[0]

    return space.draw(draw)


def is_number(axis: Axis) -> bool:
    """Whether an axis has numbers, which can be perturbed and plotted, rather than names."""
    if isinstance(axis, Constant | Choice):
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.grid())
    return True
