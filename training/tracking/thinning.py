"""Policy: which points of a series MLflow gets. The event log and the system metrics' file keep every point.

MLflow has no way to replace points that it has, and a run's length is not known: it may be resumed for more epochs, or stopped early. So
the choice is made once, in order, and gets coarser while the run grows:

* All of the first `dense` points are delivered. From there on, each time the run quadruples, half as many per step are: every second point,
  then every fourth, and so on. The number of points grows with the square root of the run's length. A stride that grew with the length
  itself would leave a few thousand points, but most of them at the beginning: MLflow's overview takes every n-th of a run's points, 320
  in all, and would show the second half of a million steps with 30 of them, instead of 80 now and 160 of all points.
* Evenly spaced points draw the trend and the noise as they are, but lose what is rare: a spike of the loss, a step that stalled. So of
  each window of `WINDOW_SAMPLES` even points, every metric also gets its smallest and its largest value and the first NaN, at their own
  steps. The minima and maxima alone would draw the same envelope (J. Jugel et al., M4, VLDB 2014), but a chart that averages them, or
  that shows some of them, as MLflow's overview does, would show outliers as the rule.
* The first point of the run and the last one of each attempt are always there.

A metric thus gets about (1 + 2 / `WINDOW_SAMPLES`) (3 sqrt(n `dense`) / 2) of n points, 39,000 of a million with the default, and at most
four more for each attempt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from training.tracking.point import Point

WINDOW_SAMPLES = 8
"""Even points of a window, for two extremes: eight of ten delivered points are typical ones."""


class Candidate(NamedTuple):
    """A point and its number in the series, from 1."""

    number: int
    point: Point


@dataclass
class Window:
    """What may still be delivered of one metric.

    Attributes:
        low, high: first smallest and first largest value of the window so far.
        nan: first NaN.
        last: newest point.
    """

    last: Candidate
    low: Candidate | None = None
    high: Candidate | None = None
    nan: Candidate | None = None

    def add(self, candidate: Candidate) -> None:
        """Account the next point."""
        value = candidate.point.value
        self.last = candidate
        if math.isnan(value):
            self.nan = self.nan or candidate
            return
        if self.low is None or value < self.low.point.value:
            self.low = candidate
        if self.high is None or value > self.high.point.value:
            self.high = candidate

    def extremes(self) -> set[Candidate]:
        """The points that stand for the window."""
        return {candidate for candidate in (self.low, self.high, self.nan) if candidate is not None}


@dataclass
class Series:
    """Progress of one series: all that a restart needs, as JSON types.

    Attributes:
        dense: points of each metric that are all delivered; None delivers every point.
        count: measurements so far.
        windows: the open window of each metric.
    """

    dense: int | None = None
    count: int = 0
    windows: dict[str, Window] = field(default_factory=dict)


def stride(number: int, *, dense: int) -> int:
    """Distance between the even points around a point of a series: 1 up to `dense`, 2 up to four times that, then 4, and so on."""
    quadruplings = (((number - 1) // dense).bit_length() + 1) // 2
    return 1 << quadruplings


class Thinner:
    """Chooses the points of one series of measurements, each of which has at most one point of a metric.

    The result depends on the measurements and on the calls of `close`, not on batches: `series` may be saved after any call and be
    continued by another thinner.

    Args:
        series: its progress, which is updated.
    """

    def __init__(self, series: Series) -> None:
        self.series = series

    def add(self, measurement: Sequence[Point]) -> list[Point]:
        """The points to deliver after the next measurement: its own, and the extremes of a window that ends with it."""
        self.series.count += 1
        number, dense = self.series.count, self.series.dense
        if dense is None or number <= dense:
            return list(measurement)
        for point in measurement:
            candidate = Candidate(number, point)
            self.series.windows.setdefault(point.key, Window(candidate)).add(candidate)
        chosen = list(measurement) if _is_even(number, dense=dense) else []
        if _ends_window(number, dense=dense):
            chosen += self._take(one for window in self.series.windows.values() for one in window.extremes())
        return chosen

    def close(self, *, dense: int | None) -> list[Point]:
        """The points to deliver at the end of an attempt: the extremes since the last window, and the newest point of each metric.

        Args:
            dense: points that are all delivered, in the measurements after it.
        """
        windows = self.series.windows.values()
        chosen = self._take(one for window in windows for one in {*window.extremes(), window.last})
        self.series.dense = dense
        return chosen

    def _take(self, candidates: Iterable[Candidate]) -> list[Point]:
        """The points in order, without those that are delivered already; empties the windows."""
        dense = self.series.dense
        missing = [one for one in candidates if dense is not None and not _is_even(one.number, dense=dense)]
        self.series.windows = {}
        return [one.point for one in sorted(missing, key=lambda one: (one.number, one.point.key))]


def _is_even(number: int, *, dense: int) -> bool:
    return _offset(number, dense=dense) % stride(number, dense=dense) == 0


def _ends_window(number: int, *, dense: int) -> bool:
    """Also where the stride changes."""
    here = stride(number, dense=dense)
    return _offset(number, dense=dense) % (here * WINDOW_SAMPLES) == 0 or stride(number + 1, dense=dense) != here


def _offset(number: int, *, dense: int) -> int:
    """Measurements since the stride changed last."""
    return number - dense * stride(number, dense=dense) ** 2 // 4
