"""Metrics of the event log that are sent together."""

from __future__ import annotations

from copy import deepcopy

from observability.runlog import CheckpointCommitted, Evaluated, Step
from training.tracking import payload
from training.tracking.point import Point
from training.tracking.state import TrackingState
from training.tracking.thinning import Series, Thinner


class Batch:
    """Metrics to send, and the state of the delivery after them.

    Evaluations are never thinned.

    Attributes:
        points: the metrics.
        offset, newest_step, series: see `TrackingState`.
    """

    def __init__(self, state: TrackingState) -> None:
        self.points: list[Point] = []
        self.offset = state.offset
        self.newest_step = dict(state.newest_step)
        self.series = deepcopy(state.series)

    def add(self, event: Step | Evaluated | CheckpointCommitted, offset: int) -> None:
        """Add an event, unless its step was added before: a restart repeats steps after the checkpoint."""
        name = payload.series(event)
        new = payload.points(event)
        if new and new[0].step > self.newest_step.get(name, -1):
            is_thinned = name in self.series and not isinstance(event, Evaluated)
            self.points += Thinner(self.series[name]).add(new) if is_thinned else new
            self.newest_step[name] = new[0].step
        self.offset = offset

    def end_attempt(self, *, dense: int | None) -> None:
        """Add what thinning has held back until the end of an attempt.

        Args:
            dense: `tracking.dense_points` from here on.
        """
        for name in (payload.STEPS, payload.CHECKPOINTS):
            self.points += Thinner(self.series.setdefault(name, Series())).close(dense=dense)

    def skip_to(self, offset: int) -> None:
        """Advance the cursor past events without metrics."""
        self.offset = offset
