"""What the report's plots share: curves over steps, the scale of the y-axis, and marks for restarts and skipped steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from observability.history import RunHistory
from observability.quantities import number
from observability.report.palette import BAD, INK, TRAIN, VALIDATION
from observability.report.series import Floats, Grouped, centred_mean, grouped, smoothing_window, values_of
from observability.runlog import Evaluated

_MARKED_POINTS = 60
"""Largest number of points of a curve that are marked one by one, so that a curve of one point is visible."""

_LOG_SCALE_RATIO = 30.0
"""Ratio of the largest to the smallest value above which the axis becomes logarithmic."""


def choose_scale(axes: Axes, values: Floats, *, bottom: float | None = None) -> None:
    """Use a logarithmic y-axis if a linear one, which begins at `bottom`, would hide the small values."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not positive.size or positive.max() / positive.min() <= _LOG_SCALE_RATIO:
        axes.set_ylim(bottom=bottom)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if positive.max() / positive.min() < 1e3 else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def plot_validation(axes: Axes, history: RunHistory, value: Callable[[Evaluated], float]) -> None:
    """Draw a quantity of the validations over their steps."""
    validation = history.evaluations_of("validation")
    values = np.array([value(evaluation) for evaluation in validation])
    steps = [evaluation.step for evaluation in validation]
    axes.plot(steps, values, color=VALIDATION, marker=marker(values), markersize=3.5, linewidth=1.4, label="validation")


def plot_training(axes: Axes, history: RunHistory, values: Floats, *, window: int | None = None) -> int:
    """Draw a bold moving average of a quantity over a faint line of its values, or a band of their range if steps are grouped.

    Steps that were skipped because of their gradient are marked at the bottom.

    Args:
        axes: axes to draw on.
        history: the run.
        values: (n,) one value per step.
        window: steps of the moving average; `smoothing_window` by default.

    Returns:
        Steps per group.
    """
    numbers = values_of(history.steps, lambda step: step.step)
    raw = grouped(numbers, values)
    if raw.group == 1:
        axes.plot(raw.step, raw.mean, color=TRAIN, alpha=0.35, linewidth=0.8, marker=marker(raw.mean), markersize=3)
    else:
        axes.fill_between(raw.step, raw.low, raw.high, color=TRAIN, alpha=0.22, linewidth=0)
    if skipped := history.skipped_steps:
        label, bottom = f"skipped, gradient not finite ({number(len(skipped))})", np.full(len(skipped), 0.02)
        axes.scatter(skipped, bottom, marker="x", s=22, color=BAD, transform=axes.get_xaxis_transform(), label=label)
    window = window or smoothing_window(len(values))
    line = grouped(numbers, centred_mean(values, window))
    label = f"training, mean over {number(window)} steps" if len(values) > 1 else "training"
    axes.plot(
        line.step,
        line.mean,
        color=TRAIN,
        linewidth=1.7,
        marker=marker(line.mean) if len(values) == 1 else "",
        label=label,
    )
    return raw.group


def marker(values: Floats) -> str:
    """Marker of a curve's points; none if the curve has so many that they would hide it."""
    return "o" if np.isfinite(values).sum() <= _MARKED_POINTS else ""


def edges(groups: Grouped) -> Floats:
    """(n + 1,) limits of each group on the step axis, halfway between neighbours and half a group outside at both ends."""
    middles = (groups.step[1:] + groups.step[:-1]) / 2
    half = groups.group / 2
    return np.concatenate([groups.step[:1] - half, middles, groups.step[-1:] + half])


def finish_axes(
    axes: Axes, history: RunHistory, *, ylabel: str, xlabel: str = "step", legend: str = "upper right"
) -> None:
    """Label the axes, mark restarts, and format steps as whole numbers."""
    for index, restart in enumerate(history.restarts):
        label = "restart" if index == 0 else None
        axes.axvline(restart.step + 0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1.0, label=label)
    low, high = axes.get_xlim()
    if high - low < 2:
        axes.set_xlim((low + high) / 2 - 1, (low + high) / 2 + 1)
    axes.set_ylabel(ylabel)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    if legend:
        axes.legend(loc=legend, fontsize=8.5)
