"""Trials as a search's history has them, for the tests of searchers."""

from __future__ import annotations

from collections.abc import Mapping

from training.config.schema import OptionValue
from tune.events import TrialEnded, TrialReported, TrialStatus
from tune.history import TrialHistory
from tune.space.settings import AxisSettings
from tune.space.space import Space

Axes = Mapping[str, Mapping[str, object]]


def space_of(axes: Axes) -> Space:
    """The space of these axes, as a file has them."""
    return Space.of({key: AxisSettings.model_validate(axis) for key, axis in axes.items()})


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
        TrialReported(
            trial=name, epoch=epoch, step=epoch, metrics={metric: loss, **metrics}, worker_seconds=float(epoch)
        )
        for epoch, loss in enumerate(losses, start=1)
    ]
    ended = None if status is None else TrialEnded(trial=name, status=status)
    return TrialHistory(id=name, first_values=values, values=values, added=float(number), reports=reports, ended=ended)
