"""The data of the report's plots: steps as arrays, smoothed, and grouped if a plot cannot show each one."""

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
"""Largest number of points of a curve: about one per pixel of a plot half a page wide."""


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """One quantity over groups of consecutive steps.

    Attributes:
        group: steps per group.
        step: (n,) mean step number of each group.
        mean, low, high: (n,) mean, minimum and maximum of the finite values of each group; NaN if there are none.
    """

    group: int
    step: Floats
    mean: Floats
    low: Floats
    high: Floats


def group_size(count: int) -> int:
    """Steps per point of a curve over `count` steps."""
    return max(1, -(-count // MAX_POINTS))


def values_of(steps: list[Step], value: Callable[[Step], float]) -> Floats:
    """(n,) the `value` of each step."""
    return np.fromiter((value(step) for step in steps), dtype=np.float64, count=len(steps))


def grouped(steps: Floats, values: Floats) -> Grouped:
    """Group (n,) values by consecutive steps; the last group may be smaller."""
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
    """Window of the moving average over `count` steps: 2 % of them, at least 5."""
    return max(5, count // 50)


def centred_mean(values: Floats, window: int) -> Floats:
    """(n,) centred moving average over the finite values of a `window`, which is shorter at both ends.

    A trailing average would lag behind the evaluations in the same plot.
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
    """A phase of start-up; `start` and `end` are in seconds since the settings were accepted."""

    name: str
    process: str
    start: float
    end: float


def startup_spans(history: RunHistory) -> list[Span]:
    """The start-up phases of the newest command, in the order in which they began, followed by the first step.

    A phase ends when the next phase of its process begins, or when training starts.
    """
    if history.resumed is None:
        return []
    origin = history.resumed.time
    training_start = next((event.time for event in history.training_starts if event.time >= origin), None)
    ready = training_start if training_start is not None else history.last_time
    phases = [phase for phase in history.phases if origin <= phase.time <= ready]
    spans = []
    for index, phase in enumerate(phases):
        end = next((later.time for later in phases[index + 1 :] if later.process == phase.process), ready)
        spans.append(Span(name=phase_text(phase), process=phase.process, start=phase.time - origin, end=end - origin))
    first_step = next((step.time for step in history.steps if step.time >= ready), None)
    if training_start is not None and first_step is not None:
        spans.append(Span(name="first step", process="rank 0", start=ready - origin, end=first_step - origin))
    return spans
