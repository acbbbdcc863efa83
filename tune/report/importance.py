"""Which settings matter: Optuna's PED-ANOVA (arXiv:2304.10255), its default in place of fANOVA, which also rates conditional settings.

It compares the values of the best trials with those of all. Optuna's documentation prefers at least five trials above the quantile, so a
search of fewer than fifty takes its best five, and one of fewer than ten is not rated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from tune.report.data import SearchData
from tune.space.axes import Constant
from tune.space.space import Space

_BEST = 5
_FEWEST = 2 * _BEST
_QUANTILE = 0.1


@dataclass(frozen=True, kw_only=True)
class Importances:
    """The result.

    Attributes:
        by_setting: shares that sum to 1, the largest first; empty if they cannot be told.
        note: what they mean, or why they cannot be told.
    """

    by_setting: dict[str, float]
    note: str


def importances(data: SearchData) -> Importances:
    """How much each setting decides whether a trial is among the best."""
    space = Space(data.axes)  # of an earlier start there may be trials with values that it does not have any more
    ended = [trial for trial in data.ranked if trial.ended is not None and space.holds(trial.first_values)]
    if data.is_population:
        return _none("the settings of a trial change while it trains")
    if len(ended) < _FEWEST:
        return _none(f"it needs at least {_FEWEST} trials that ended with a result, and there are {len(ended)}")
    axes = {key: axis for key, axis in data.axes.items() if not isinstance(axis, Constant)}
    axes = {key: axis for key, axis in axes.items() if any(key in trial.first_values for trial in ended)}
    values = [trial.best(*data.objective) for trial in ended]
    finite = [trial for trial, value in zip(ended, values, strict=True) if math.isfinite(value)]
    if len(finite) < _FEWEST or len(set(values)) < 2:
        return _none("the trials' results are all equal or not finite")
    with _quietly_imported() as optuna:
        from tune.searchers.tpe import distribution_of, parameter_of  # noqa: PLC0415 - imports Optuna

        study = optuna.create_study(direction="maximize" if data.objective[1] == "max" else "minimize")
    for trial in finite:
        chosen = [key for key in axes if key in trial.first_values]
        study.add_trial(
            optuna.trial.create_trial(
                params={key: parameter_of(axes[key], trial.first_values[key]) for key in chosen},
                distributions={key: distribution_of(axes[key]) for key in chosen},
                value=trial.best(*data.objective),
            )
        )
    quantile = max(_QUANTILE, _BEST / len(finite))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    if not any(found.values()):
        return _none("the best trials' values are spread like those of all")
    count = math.ceil(quantile * len(finite))
    return Importances(
        by_setting=found,
        note=f"Share of each setting in what tells the best {count} of {len(finite)} trials from the others, by their best "
        f"{data.metric.title}, also of those that were stopped early (Optuna's PED-ANOVA).",
    )


@contextmanager
def _quietly_imported() -> Iterator[ModuleType]:
    """Optuna, which takes a second to import, without the line that says that a study was created."""
    with warnings.catch_warnings():
        # In a notebook its progress bar, which is not used, asks for widgets.
        warnings.filterwarnings("ignore", message="IProgress not found")
        import optuna  # noqa: PLC0415
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield optuna
    finally:
        optuna.logging.set_verbosity(before)


def _none(why: str) -> Importances:
    return Importances(by_setting={}, note=f"The importance of the settings is not shown: {why}.")
