"""Search sections, spaces, and trials as a search's history has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from observability.event_log import NOW
from training.config.schema import OptionValue
from tune.events import TrialEnded, TrialReported, TrialStatus
from tune.history import TrialHistory
from tune.settings import SearchSettings
from tune.space.settings import AxisSettings
from tune.space.space import Space

Axes = Mapping[str, Mapping[str, object]]
RATE = {"optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]}}


def search_settings(
    scheduler: dict[str, Any] | None = None, space: dict[str, Any] | None = None, **more: object
) -> SearchSettings:
    """A search over the learning rate, unless `space` has other axes."""
    return SearchSettings.model_validate(
        {"scheduler": scheduler or {"name": "none"}, "space": RATE if space is None else space, **more}
    )


def space_of(axes: Axes) -> Space:
    """The space of these axes, as a file has them."""
    return Space.of({key: AxisSettings.model_validate(axis) for key, axis in axes.items()})


def reported(trial: str, epoch: int, time: float = NOW, *, seconds: float = 1.0, **metrics: float) -> TrialReported:
    """An evaluation."""
    return TrialReported(time=time, trial=trial, epoch=epoch, step=epoch, metrics=metrics, worker_seconds=seconds)


def trial_of(
    number: int,
    values: Mapping[str, OptionValue],
    *losses: float,
    status: TrialStatus | None = "done",
    metric: str = "validation_loss",
    **metrics: float,
) -> TrialHistory:
    """A trial with these values whose evaluations gave these losses, and in each of them the other metrics."""
    name = f"t{number:03d}"
    reports = [
        reported(name, epoch, seconds=float(epoch), **{metric: loss, **metrics})
        for epoch, loss in enumerate(losses, start=1)
    ]
    ended = None if status is None else TrialEnded(trial=name, status=status)
    return TrialHistory(id=name, first_values=values, values=values, added=float(number), reports=reports, ended=ended)
