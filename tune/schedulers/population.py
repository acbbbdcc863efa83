"""Population based training and bandits of Ray Tune, whose new values stay in the search space and whose exploits are reported."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.schedulers.pb2 import PB2

from training.config.schema import OptionValue
from tune.schedulers.check import bandit_axes
from tune.schedulers.perturb import Perturbation
from tune.schedulers.results import EPOCH, STEP, TRIAL, values_of
from tune.settings import Pb2Settings, PbtSettings
from tune.space.axes import Continuous, Integers
from tune.space.space import Space


@dataclass(frozen=True, kw_only=True)
class Exploit:
    """A trial is about to continue from a checkpoint of a better one.

    Attributes:
        trial: the trial.
        donor: the better one.
        epoch: epochs that the donor's checkpoint has trained.
        step: optimizer steps of the same.
        values: the trial's values from now on.
    """

    trial: str
    donor: str
    epoch: int
    step: int
    values: dict[str, OptionValue]


@dataclass(frozen=True, kw_only=True)
class PopulationParts:
    """What both kinds of population need.

    Attributes:
        metric: the metric that ranks the trials.
        mode: max or min.
        perturbation: draws new values.
        epochs: epochs that each trial has trained before this driver, by its name.
        on_exploit: called for each exploit.
    """

    metric: str
    mode: str
    perturbation: Perturbation
    epochs: Mapping[str, int]
    on_exploit: Callable[[Exploit], None]


class Population(PopulationBasedTraining):
    """PBT, asynchronous: a trial is compared with the others each time it has trained so many epochs more."""

    def __init__(self, settings: PbtSettings | Pb2Settings, parts: PopulationParts, **options: Any) -> None:  # noqa: ANN401
        super().__init__(
            time_attr=EPOCH,
            metric=parts.metric,
            mode=parts.mode,
            perturbation_interval=settings.every_epochs,
            quantile_fraction=settings.quantile,
            log_config=False,
            custom_explore_fn=dict,  # never called, as `_get_new_config` is ours
            **options,
        )
        self._parts = parts

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:  # noqa: ANN401 - Ray has no types
        """A trial joins, or goes on after an earlier driver: it is compared after the same epochs as without the interruption.

        Ray refuses searchers here, because they do not hear of the values that a trial goes on with; our searcher reads the log.
        """
        del tune_controller
        super().on_trial_add(SimpleNamespace(search_alg=None), trial)
        every = self._perturbation_interval
        trained = self._parts.epochs.get(trial.config[TRIAL], 0)
        self._trial_state[trial].last_perturbation_time = trained // every * every

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> tuple[dict[str, Any], dict[str, str]]:  # noqa: ANN401
        values = self._parts.perturbation(values_of(trial_to_clone.config))
        return {TRIAL: trial.config[TRIAL], **values}, {}

    def _exploit(self, tune_controller: Any, trial: Any, trial_to_clone: Any) -> None:  # noqa: ANN401
        super()._exploit(tune_controller, trial, trial_to_clone)
        saved = self._trial_state[trial_to_clone].last_result
        self._parts.on_exploit(
            Exploit(
                trial=trial.config[TRIAL],
                donor=trial_to_clone.config[TRIAL],
                epoch=saved[EPOCH],
                step=saved[STEP],
                values=values_of(trial.config),
            )
        )


class Bandits(Population, PB2):
    """PB2: a Gaussian process chooses the numbers, of logarithmic axes the logarithms."""

    def __init__(self, settings: Pb2Settings, space: Space, parts: PopulationParts) -> None:
        self._axes = bandit_axes(space)
        bounds = {key: [_scale(axis, axis.low), _scale(axis, axis.high)] for key, axis in self._axes.items()}
        super().__init__(settings, parts, hyperparam_bounds=bounds)

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Any) -> float:  # noqa: ANN401
        score: float = super()._save_trial_state(state, time, result, _Scaled(trial, self._axes))
        return score

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> tuple[dict[str, Any], dict[str, str]]:  # noqa: ANN401
        with warnings.catch_warnings():
            # Of the few points of a young search the process has no best fit; scipy warns of an option that Ray passes.
            warnings.simplefilter("ignore")
            # Ray's own, not that of Population.
            scaled, _ = PB2._get_new_config(self, trial, _Scaled(trial_to_clone, self._axes))  # noqa: SLF001
        chosen = {key: _unscale(axis, scaled[key]) for key, axis in self._axes.items()}
        values = self._parts.perturbation.with_chosen(values_of(trial_to_clone.config), chosen)
        return {TRIAL: trial.config[TRIAL], **values}, {}


class _Scaled:
    """A trial with the numbers that the Gaussian process sees. PB2 knows a trial by its text."""

    def __init__(self, trial: Any, axes: Mapping[str, Continuous | Integers]) -> None:  # noqa: ANN401
        self._text = str(trial)
        self.config = {**trial.config, **{key: _scale(axis, trial.config[key]) for key, axis in axes.items()}}

    def __str__(self) -> str:
        return self._text


def _scale(axis: Continuous | Integers, value: float) -> float:
    # PB2 gives a new value the type of the old one, and would cut off the digits of an integer.
    return math.log(value) if axis.is_log else float(value)


def _unscale(axis: Continuous | Integers, value: float) -> float:
    return math.exp(value) if axis.is_log else value
