"""The numbers behind the report's plots: steps as arrays, smoothed, and grouped where there are more than a plot can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from observability.history import RunHistory
from observability.progress import phase_text
from observability.runlog import Step

Floats = NDArray[np.float64]

MAX_POINTS = 800
"""Points of a curve: about one for every pixel of a plot that is half a page wide. More would be drawn on top of each other."""


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """A value of the steps in groups of consecutive ones; with `group` 1 these are the steps themselves.

    Attributes:
        step: (n,) the middle of each group.
        mean, low, high: (n,) over the finite values of each group; NaN in a group that has none.
    """

    group: int
    step: Floats
    mean: Floats
    low: Floats
    high: Floats


def group_size(count: int) -> int:
    """Steps that share a point of a curve when `count` steps are drawn."""
    return max(1, -(-count // MAX_POINTS))


def values_of(steps: list[Step], value: Callable[[Step], float]) -> Floats:
    """(n,) a value of each step."""
    return np.fromiter((value(step) for step in steps), dtype=np.float64, count=len(steps))


def grouped(steps: Floats, values: Floats) -> Grouped:
    """Put (n,) values into groups of consecutive steps, the last of which may be smaller."""
    group = group_size(len(values))
    padding = -len(values) % group
    shape = (-1, group)
    table = np.pad(np.where(np.isfinite(values), values, np.nan), (0, padding), constant_values=np.nan).reshape(shape)
    numbers = np.pad(steps, (0, padding), constant_values=np.nan).reshape(shape)
    known = np.isfinite(table)
    is_known = known.any(axis=1)
    count = np.maximum(known.sum(axis=1), 1)

    def where_known(column: Floats) -> Floats:
        return np.where(is_known, column, np.nan)

    return Grouped(
        group=group,
        step=np.nanmean(numbers, axis=1),
        mean=where_known(np.where(known, table, 0).sum(axis=1) / count),
        low=where_known(np.where(known, table, np.inf).min(axis=1)),
        high=where_known(np.where(known, table, -np.inf).max(axis=1)),
    )


def smoothing_window(count: int) -> int:
    """Steps that the smoothed curve of `count` steps averages over: 2 % of them, 5 at least."""
    return max(5, count // 50)


def centred_mean(values: Floats, window: int) -> Floats:
    """(n,) mean of the `window` values around each, of fewer at both ends; values that are not finite are left out.

    Centred, because a mean of earlier values lags behind the evaluations that are drawn beside it.
    """
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    index = np.arange(len(values))
    start = np.maximum(0, index - window // 2)
    end = np.minimum(len(values), index + window - window // 2)
    number = counts[end] - counts[start]
    return np.where(number > 0, (sums[end] - sums[start]) / np.maximum(number, 1), np.nan)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A phase of start-up; `start` and `end` in seconds since the command's settings were accepted."""

    name: str
    process: str
    start: float
    end: float


def startup_spans(history: RunHistory) -> list[Span]:
    """The phases of the newest start by a command, in the order in which they began, the first step as the last of them.

    A phase ends where the next one of its process begins, or where training does.
    """
    if history.resumed is None:
        return []
    origin = history.resumed.time
    begun = next((event.time for event in history.training_begun if event.time >= origin), None)
    ready = begun if begun is not None else history.last_time
    phases = [phase for phase in history.phases if origin <= phase.time <= ready]
    spans = []
    for index, phase in enumerate(phases):
        end = next((later.time for later in phases[index + 1 :] if later.process == phase.process), ready)
        spans.append(Span(name=phase_text(phase), process=phase.process, start=phase.time - origin, end=end - origin))
    first_step = next((step.time for step in history.steps if begun is not None and step.time >= begun), None)
    if first_step is not None:
        spans.append(Span(name="first step", process="rank 0", start=ready - origin, end=first_step - origin))
    return spans
