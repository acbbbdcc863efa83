"""Makes Ray Tune's scheduler from the settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, MedianStoppingRule

from tune.history import SearchHistory
from tune.schedulers.check import check_scheduler
from tune.schedulers.halving import Hyperband
from tune.schedulers.perturb import Perturbation
from tune.schedulers.population import Bandits, Exploit, Population, PopulationParts
from tune.schedulers.recorded import RecordedScheduler, Stop
from tune.schedulers.results import EPOCH
from tune.settings import (
    AshaSettings,
    HyperbandSettings,
    MedianSettings,
    Mode,
    NoSchedulerSettings,
    Pb2Settings,
    PbtSettings,
    SearchSettings,
)
from tune.space.space import Space


def _ignore(event: Stop | Exploit) -> None:
    del event


def make_scheduler(
    settings: SearchSettings,
    space: Space,
    *,
    epochs: int,
    metric: str,
    mode: Mode,
    history: SearchHistory | None = None,
    on_stop: Callable[[Stop], None] = _ignore,
    on_exploit: Callable[[Exploit], None] = _ignore,
) -> RecordedScheduler:
    """The scheduler of a search.

    Args:
        settings: the `search` section.
        space: its axes.
        epochs: `loop.epochs` of the trials.
        metric: the first objective.
        mode: whether it is to be as large or as small as possible.
        history: what earlier drivers of this search have recorded.
        on_stop: called when a trial is stopped early, before the trial ends.
        on_exploit: called when a trial is about to continue from another's checkpoint.

    Raises:
        SettingsError: it could never stop or change a trial.
    """
    check_scheduler(settings, space, epochs=epochs)
    earlier = history or SearchHistory()

    def population(factors: tuple[float, float] = (1.0, 1.0), resample: float = 0.0) -> PopulationParts:
        exploits = sum(len(trial.exploits) for trial in earlier.trials.values())
        seed = f"{settings.seed}/{exploits}"
        return PopulationParts(
            metric=metric,
            mode=mode,
            perturbation=Perturbation(space, factors=factors, resample=resample, seed=seed),
            epochs={name: trial.epoch for name, trial in earlier.trials.items()},
            on_exploit=on_exploit,
        )

    inner: Any
    match settings.scheduler:
        case NoSchedulerSettings():
            inner = FIFOScheduler()
        case AshaSettings() as asha:
            inner = AsyncHyperBandScheduler(
                time_attr=EPOCH,
                metric=metric,
                mode=mode,
                max_t=epochs,
                grace_period=asha.grace_epochs,
                reduction_factor=asha.reduction_factor,
                brackets=asha.brackets,
            )
        case HyperbandSettings() as hyperband:
            inner = Hyperband(metric=metric, mode=mode, epochs=epochs, reduction_factor=hyperband.reduction_factor)
        case MedianSettings() as median:
            inner = MedianStoppingRule(
                time_attr=EPOCH,
                metric=metric,
                mode=mode,
                grace_period=median.grace_epochs,
                min_samples_required=median.trials_to_compare,
                # A trial would else be paused, and its workers restarted, until there are enough to compare with.
                min_time_slice=math.inf,
            )
        case PbtSettings() as pbt:
            inner = Population(pbt, population(pbt.factors, pbt.resample))
        case Pb2Settings() as pb2:
            inner = Bandits(pb2, space, population())
    return RecordedScheduler(
        inner, name=settings.scheduler.name, mode=mode, seed=settings.seed, history=earlier, on_stop=on_stop
    )
