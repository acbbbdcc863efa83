"""The tree-structured Parzen estimator of Optuna (arXiv:2304.11127), also for several objectives.

Optuna's storage is not used: for every suggestion a study in memory is made from the trials so far, so no second record of the search can
disagree with its log. A suggestion takes 0.02 s after 100 trials and 0.6 s after 1,000, on a core of a busy machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from training.config.schema import OptionValue
from tune.history import TrialHistory
from tune.searchers.base import first_untried
from tune.searchers.plain import RandomSearcher
from tune.space.axes import Choice, Constant, Continuous, Integers, is_same
from tune.space.space import Space

_ATTEMPTS = 8
"""Suggestions until one is new, before random ones; the estimator may have narrowed a space of a few combinations to one."""

_DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}

Variable = Choice | Integers | Continuous


class TpeSearcher:
    """Suggests values that are likely among good trials and unlikely among the others."""

    def __init__(self, space: Space, objectives: Mapping[str, str], *, seed: int, repeats: bool = False) -> None:
        """Make the searcher.

        Args:
            space: the axes.
            objectives: the metrics to optimize with max or min, the most important first.
            seed: seed of the search.
            repeats: whether several trials may begin with equal values.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._objectives = dict(objectives)
        self._seed = seed
        self._repeats = repeats
        self._random = RandomSearcher(space, seed=seed)

    def suggest(self, trials: Sequence[TrialHistory]) -> dict[str, OptionValue] | None:
        """Values that no trial has begun with; None if neither the estimator nor random draws give any."""
        draws = chain(self._draws(trials), self._random.draws(len(trials)))
        return first_untried(draws, [] if self._repeats else trials)

    def _draws(self, trials: Sequence[TrialHistory]) -> Iterator[dict[str, OptionValue]]:
        known = [self._frozen(trial) for trial in trials if self._space.holds(trial.values)]
        for attempt in range(_ATTEMPTS):
            seed = hashlib.sha256(f"{self._seed}/{len(trials)}/{attempt}".encode()).digest()
            study = optuna.create_study(
                directions=[_DIRECTIONS[mode] for mode in self._objectives.values()],
                sampler=optuna.samplers.TPESampler(seed=int.from_bytes(seed[:4])),
            )
            study.add_trials(known)
            yield self._space.draw(partial(_draw, study.ask()))

    def _frozen(self, trial: TrialHistory) -> FrozenTrial:
        """A trial as Optuna has it, without constants, which would be dimensions of its space."""
        axes = {key: axis for key, axis in self._space.axes.items() if key in trial.values}
        variable = {key: axis for key, axis in axes.items() if not isinstance(axis, Constant)}
        state, values, steps = self._result(trial)
        return optuna.trial.create_trial(
            state=state,
            values=values,
            intermediate_values=steps,
            params={key: parameter_of(axis, trial.values[key]) for key, axis in variable.items()},
            distributions={key: distribution_of(axis) for key, axis in variable.items()},
        )

    def _result(self, trial: TrialHistory) -> tuple[TrialState, list[float] | None, dict[int, float]]:
        """State, values of the objectives, and the best value of a trial that was stopped early, by its last epoch.

        Measured on toy curves of up to 27 epochs under asynchronous halving, 48 trials, 60 to 80 seeds (true loss of the best trial):

        * A stopped trial is told as pruned, which ranks it behind trials of more epochs. Told as complete, its best value competes with
          those of more epochs; the paired difference is 0.002 +- 0.002, and 0.000 +- 0.001 where the best settings learn slowest.
          If it is not told at all, ten trials have to complete before the estimator learns: 0.115 +- 0.008 rather than 0.074 +- 0.008.
        * A trial that failed, or reported no value, stays one that runs, which counts as bad: 0.066 +- 0.006. As a failure Optuna would
          forget it and try its neighbours again: 0.083 +- 0.007.

        Suggestions that get better survive more rungs: the 48 trials took 449 epochs rather than the 238 of random values (0.086 +- 0.007),
        with which 100 trials take 429 (0.064 +- 0.008). Here learning saves trials, not epochs.
        """
        # Several objectives have to be of one and the same model.
        values = [trial.value(metric) for metric in self._objectives]
        if len(values) == 1:
            values = [trial.best(*objective) for objective in self._objectives.items()]
        if trial.status is None or trial.status == "failed" or any(math.isnan(value) for value in values):
            return TrialState.RUNNING, None, {}
        if trial.status == "stopped" and len(values) == 1:
            return TrialState.PRUNED, None, {trial.epoch: values[0]}
        return TrialState.COMPLETE, values, {}


def distribution_of(axis: Variable) -> BaseDistribution:
    """The values of an axis as Optuna has them; choices are known to it by their position, because it cannot hold lists."""
    if isinstance(axis, Choice):
        return CategoricalDistribution(range(len(axis.values)))
    if isinstance(axis, Integers):
        return IntDistribution(axis.low, axis.clip(axis.high), log=axis.is_log, step=axis.step)
    return FloatDistribution(axis.low, axis.clip(axis.high), log=axis.is_log, step=axis.step)


def parameter_of(axis: Variable, value: OptionValue) -> float:
    """A value of the axis as Optuna has it: the number, or the position of a choice."""
    if isinstance(axis, Choice):
        return next(number for number, one in enumerate(axis.values) if is_same(one, value))
    assert isinstance(value, int | float)
    return value


def _draw(trial: optuna.Trial, key: str, axis: Variable) -> OptionValue:
    """A value of the axis; Optuna's own has digits that binary fractions add, or is beside a bound by a rounding error."""
    if isinstance(axis, Choice):
        position = trial.suggest_categorical(key, range(len(axis.values)))
        assert isinstance(position, int)
        return axis.values[position]
    if isinstance(axis, Integers):
        return axis.clip(trial.suggest_int(key, axis.low, axis.clip(axis.high), log=axis.is_log, step=axis.step))
    return axis.clip(trial.suggest_float(key, axis.low, axis.clip(axis.high), log=axis.is_log, step=axis.step))
