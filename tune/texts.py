"""How trials, their metrics and their values are named and written, in the terminal and in the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from observability.objective_metrics import Metric, ObjectiveInfo
from observability.quantities import duration, number
from observability.runlog import RunLogReader, TrainingStarted
from training.config.schema import OptionValue
from tune.history import SECONDS, TrialHistory

TRIALS_FOLDER = "trials"
PARAMETERS = "parameters"
_PREFIX = "validation_"
_NO_VALUE = "none"


class MetricTexts:
    """Texts of metrics. The description is read from the first trial's run log that has one; before, metrics are plain numbers.

    Args:
        directory: the search's folder; None if there is none to read.
    """

    def __init__(self, directory: Path | None) -> None:
        self._trials = None if directory is None else directory / TRIALS_FOLDER
        self._info: ObjectiveInfo | None = None

    def find(self, name: str) -> Metric:
        """The metric of a search, e.g. `validation_accuracy`."""
        if name == SECONDS:
            return Metric(name="worker_seconds")
        own = self._objective().find(name.removeprefix(_PREFIX))
        return Metric(name=name, is_ratio=own.is_ratio, higher_is_better=own.higher_is_better)

    def text(self, name: str, value: float) -> str:
        """A value for people to read, e.g. `97.5 %`; `none` for NaN."""
        if math.isnan(value):
            return _NO_VALUE
        if name == SECONDS:
            return duration(value)
        return number(value) if name == PARAMETERS else self.find(name).text(value)

    def _objective(self) -> ObjectiveInfo:
        if self._info is None and self._trials is not None:
            self._info = next((info for run in sorted(self._trials.glob("*")) if (info := _described(run))), None)
        return self._info or ObjectiveInfo()


def _described(run: Path) -> ObjectiveInfo | None:
    for event in RunLogReader(run).read_new():
        if isinstance(event, TrainingStarted):
            return ObjectiveInfo.of(event.objective)
    return None


def varying(trials: Iterable[TrialHistory]) -> list[str]:
    """The settings that differ between trials, or that some do not have, in the order of the space."""
    values = [trial.values for trial in trials] + [trial.first_values for trial in trials]
    keys = dict.fromkeys(key for one in values for key in one)
    return [key for key in keys if len({repr(one.get(key)) for one in values}) > 1]


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key without its first parts, as far as it stays unique: `learning_rate` for `optimizer.learning_rate`."""
    known = list(keys)
    return {key: _unique_end(key, known) for key in known}


def _unique_end(key: str, known: list[str]) -> str:
    parts = key.split(".")
    least = 2 if parts[-1] == "name" else 1  # of what it is the name
    ends = (".".join(parts[-count:]) for count in range(least, len(parts)))
    return next((end for end in ends if sum(f".{one}".endswith(f".{end}") for one in known) == 1), key)


def value_text(value: OptionValue) -> str:
    """A value of a trial with at most four significant digits: `0.003162`, `sgd`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(value_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def values_text(values: Mapping[str, OptionValue]) -> str:
    """The values of a trial on one line."""
    names = short_names(values)
    return ", ".join(f"{names[key]}={value_text(value)}" for key, value in values.items())
