"""The `search` section of a configuration: what varies, who chooses, who stops a trial early, and when the search ends.

The other sections of the same files are the settings that all trials share.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from training.errors import SettingsError
from tune.space.settings import SpaceSettings

Mode = Literal["max", "min"]

DEFAULT_ROOT: Final = Path(".local/searches")
"""Parent folder of the searches' folders, unless the settings name another."""

POPULATION: Final = frozenset({"pbt", "pb2"})
"""Names of the schedulers whose trials train together and continue from each other's checkpoints."""

Metric = Annotated[
    str,
    Matching(
        r"^(validation_[a-z0-9_]+|seconds|parameters)$",
        "must be a validation metric, e.g. validation_loss, or seconds or parameters",
    ),
]


class NoSchedulerSettings(Section):
    """Every trial trains to its end."""

    name: Literal["none"] = Field("none", description="none | asha | hyperband | median | pbt | pb2.")


class AshaSettings(Section):
    """Asynchronous successive halving (arXiv:1810.05934): at each rung only the best `1 / reduction_factor` go on."""

    name: Literal["asha"] = Field(..., description="asha.")
    grace_epochs: PositiveInt = Field(1, description="Epochs that every trial trains; the first rung.")
    reduction_factor: Annotated[int, Field(ge=2)] = Field(
        3, description="Trials per trial that goes on, and ratio of epochs between two rungs."
    )
    brackets: PositiveInt = Field(1, description="Number of brackets; each next one stops its first trials later.")


class HyperbandSettings(Section):
    """Hyperband (arXiv:1603.06560): the trials of a bracket wait for each other at its rungs."""

    name: Literal["hyperband"] = Field(..., description="hyperband.")
    reduction_factor: Annotated[int, Field(ge=2)] = Field(
        3, description="Trials per trial that goes on, and ratio of epochs between two rungs."
    )


class MedianSettings(Section):
    """Median stopping (Google Vizier): a trial stops when its best is worse than the median of the others' averages."""

    name: Literal["median"] = Field(..., description="median.")
    grace_epochs: PositiveInt = Field(2, description="Epochs that every trial trains.")
    trials_to_compare: Annotated[int, Field(ge=2)] = Field(3, description="Other trials that a median needs.")


class PbtSettings(Section):
    """Population based training (arXiv:1711.09846): bad trials continue from the checkpoint of a good one with other settings."""

    name: Literal["pbt"] = Field(..., description="pbt.")
    every_epochs: PositiveInt = Field(2, description="Epochs between two comparisons of a trial with the others.")
    quantile: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.25, description="Share of the trials that copy, and share that is copied."
    )
    resample: Annotated[float, Field(ge=0, le=1)] = Field(
        0.25, description="Probability that a setting is drawn anew instead of perturbed."
    )
    factors: tuple[PositiveFloat, PositiveFloat] = Field(
        (0.8, 1.2), description="Factors that a number is perturbed by; a choice moves to its neighbour."
    )


class Pb2Settings(Section):
    """Population based bandits (arXiv:2002.02518): PBT whose new settings a Gaussian process chooses."""

    name: Literal["pb2"] = Field(..., description="pb2.")
    every_epochs: PositiveInt = Field(2, description="Epochs between two comparisons of a trial with the others.")
    quantile: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.25, description="Share of the trials that copy, and share that is copied."
    )


T = TypeVar("T")


def _not_bohb(value: T) -> T:
    """Explain why BOHB (arXiv:1807.01774) is missing: `ray/tune/search/bohb/bohb_search.py` imports hpbandster."""
    name = value.get("name") if isinstance(value, Mapping) else value
    if isinstance(name, str) and name.lower() == "bohb":
        prefix = "name=" if isinstance(value, Mapping) else ""
        raise ValueError(
            f"{prefix}bohb is not available: Ray's needs hpbandster, and that netifaces, and the last release of each (0.7.4 and "
            "0.11.0) has no wheel for Python 3.11; nearest to it is algorithm=optuna with scheduler.name=asha"
        )
    return value


SchedulerSettings = Annotated[
    NoSchedulerSettings | AshaSettings | HyperbandSettings | MedianSettings | PbtSettings | Pb2Settings,
    Field(discriminator="name"),
    BeforeValidator(_not_bohb),
]


class StopSettings(Section):
    """When the search ends before all trials have been tried; running trials save and stop."""

    target: float | None = Field(None, description="Value of the first objective that is good enough.")
    plateau_trials: PositiveInt | None = Field(None, description="Ended trials in a row without a new best.")
    gpu_hours: PositiveFloat | None = Field(None, description="Hours of all workers' GPUs; of CPUs without GPUs.")
    dollars: PositiveFloat | None = Field(None, description="Cost of all workers; needs dollars_per_worker_hour.")
    dollars_per_worker_hour: PositiveFloat | None = Field(
        None, description="Price of one worker; on a cluster, by default, of its GPUs on demand."
    )
    failures: PositiveInt = Field(
        3, description="Failed trials, since the search was started or continued, after which it stops."
    )

    def check_price(self) -> None:
        """Refuse a limit of the cost without a price.

        Raises:
            SettingsError: the price of a worker is neither set nor known.
        """
        if self.dollars is not None and self.dollars_per_worker_hour is None:
            raise SettingsError(
                f"search.stop.dollars={self.dollars:g}: the price of a worker is not known",
                remedy="set search.stop.dollars_per_worker_hour; only GPUs on demand, in the region of the price table, have one",
            )


class SearchSettings(Section):
    """All settings of a search."""

    directory: Path = Field(DEFAULT_ROOT, description="Parent folder of the searches' folders.")
    objectives: dict[Metric, Mode] = Field(
        default_factory=dict,
        description="Metrics to optimize with max or min, the most important first; {} is the metric that ranks the checkpoints, "
        "or the loss of an objective of your own.",
    )
    algorithm: Annotated[Literal["optuna", "random", "grid"], BeforeValidator(_not_bohb)] = Field(
        "optuna", description="optuna (tree-structured Parzen estimator) | random | grid (every combination)."
    )
    trials: PositiveInt = Field(16, description="Number of trials; a grid has at most as many.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="Seed of the search; run.seed is the trials' own."
    )
    scheduler: SchedulerSettings = Field(
        default_factory=NoSchedulerSettings, description="What stops bad trials early, or replaces them."
    )
    concurrency: PositiveInt | None = Field(
        None,
        description="Trials that run at the same time; null is as many as fit; the job of a cluster needs a number.",
    )
    gpus_per_worker: Annotated[float, Field(ge=0.01, le=1)] = Field(
        1.0, description="Share of a GPU that a worker reserves; below 1 only for trials of one worker."
    )
    keep_checkpoints: NonNegativeInt = Field(
        3, description="Best trials that keep their checkpoints after they have ended; those of the others are removed."
    )
    stop: StopSettings = Field(
        default_factory=StopSettings, description="When the search ends before all trials are tried."
    )
    space: SpaceSettings = Field(
        default_factory=dict, description="The axes, by the setting that each varies, e.g. optimizer.learning_rate."
    )

    @property
    def is_population(self) -> bool:
        """Whether trials train together and continue from each other's checkpoints."""
        return self.scheduler.name in POPULATION

    @model_validator(mode="after")
    def _has_an_axis(self) -> SearchSettings:
        if not self.space:
            raise ValueError(
                "space has no axis; add a setting to vary, e.g. optimizer.learning_rate: {log_uniform: [1e-4, 1e-1]}"
            )
        return self

    @model_validator(mode="after")
    def _one_objective_for_a_scheduler(self) -> SearchSettings:
        if len(self.objectives) > 1 and self.scheduler.name != "none":
            raise ValueError(
                f"scheduler={self.scheduler.name} compares trials by one metric, got objectives={', '.join(self.objectives)}"
            )
        if len(self.objectives) > 1 and self.algorithm != "optuna":
            raise ValueError(f"several objectives need algorithm=optuna, got algorithm={self.algorithm}")
        return self

    @model_validator(mode="after")
    def _a_population_has_members(self) -> SearchSettings:
        if self.is_population and self.trials < 4:
            raise ValueError(
                f"scheduler={self.scheduler.name} needs a population of at least 4, got trials={self.trials}"
            )
        return self
