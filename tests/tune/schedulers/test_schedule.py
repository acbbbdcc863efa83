"""Population based training of the real Ray Tune finds a schedule that no fixed value can match."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from tests.tune.schedulers.toy import METRIC, RATE, Log, ray_cluster, search
from tests.tune.spaces import search_settings
from tune.history import SearchHistory
from tune.schedulers.build import make_scheduler
from tune.schedulers.recorded import RecordedScheduler
from tune.space.space import Space

__all__ = ["ray_cluster"]  # fixture

pytestmark = pytest.mark.usefixtures("ray_cluster")

EPOCHS, STEPS = 20, 5
NOISE = 0.01
"""Variance of the gradient's noise; the square error is 1 at first."""


def after_epoch(error: float, rate: float) -> float:
    """The square error that stochastic gradient descent is expected to leave on a quadratic whose gradient is noisy.

    A step shrinks the distance by `1 - rate` and adds `rate` times the noise. So a high rate is best while the error is large, and a
    low one near the optimum (Schaul et al., arXiv:1206.1106, section 3).
    """
    return reduce(lambda now, each: (1 - each) ** 2 * now + each**2 * NOISE, repeat(rate, STEPS), error)


def gain(values: Mapping[str, Any], epoch: int, accuracy: float) -> float:
    """The toy's accuracy is the number of decimal digits."""
    del epoch
    return -math.log10(after_epoch(10**-accuracy, values[RATE])) - accuracy


def fixed(rate: float) -> float:
    """The accuracy after all epochs with one learning rate."""
    return -math.log10(reduce(after_epoch, repeat(rate, EPOCHS), 1.0))


@pytest.mark.long
def test_a_population_beats_every_fixed_learning_rate(tmp_path: Path) -> None:
    scheduler = {"name": "pbt", "every_epochs": 1, "quantile": 0.5, "resample": 0, "factors": [0.5, 1.5]}
    settings = search_settings(scheduler, {RATE: {"log_uniform": [1e-3, 1.0]}}, trials=4)

    def make(history: SearchHistory, log: Log) -> RecordedScheduler:
        del log
        space = Space.of(settings.space)
        return make_scheduler(
            settings, space, epochs=EPOCHS, metric=METRIC, mode="max", history=history, on_exploit=lambda _: None
        )

    log = search(tmp_path, [{RATE: rate} for rate in (0.01, 0.03, 0.1, 0.3)], make=make, gain=gain, epochs=EPOCHS)
    best = max(result[METRIC] for result in log.results if result["epoch"] == EPOCHS)
    best_fixed = max(fixed(10 ** (power / 1000)) for power in range(-3000, 1))
    assert best > best_fixed
