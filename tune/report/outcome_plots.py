"""Plots of what a search has found, and at what cost: best so far, Pareto front, learning curves, cost."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator, PercentFormatter

from observability.objective_metrics import Metric
from observability.quantities import counted, number
from observability.report.axes import choose_scale
from observability.report.drawing import FULL_WIDTH, HALF_WIDTH, Plot, figure_of, svg_of
from observability.report.palette import BAD, INK, MUTED, TEST, TRAIN, VALIDATION
from tune.history import TrialHistory
from tune.report.data import SearchData

STATUS_COLOURS = {
    "done": TRAIN,
    "stopped": MUTED,
    "failed": BAD,
    "running": TEST,
    "interrupted": TEST,
}
"""Colour of a trial by its status."""

_MARKERS = {"done": "o", "stopped": "v", "failed": "x", "running": "D", "interrupted": "D"}


def best_so_far(data: SearchData) -> Plot | None:
    """The best value over the worker-seconds and over the trials, with every trial's own best."""
    found = data.improvements()
    if not found or len(data.objectives) > 1 or len(data.trials) < 2:
        return None
    ends = {moment.trial: moment.worker_seconds for moment in data.moments}
    with figure_of((FULL_WIDTH[0], 3.4)) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        times = [moment.worker_seconds for moment in found] + [data.moments[-1].worker_seconds]
        values = [moment.value for moment in found] + [found[-1].value]
        left.step(times, values, where="post", color=VALIDATION, linewidth=1.8, label="best so far")
        numbers = {trial.id: index for index, trial in enumerate(data.trials, start=1)}
        _trials(left, data, {trial.id: ends.get(trial.id, math.nan) for trial in data.trials})
        _trials(right, data, {trial: float(index) for trial, index in numbers.items()})
        order = range(1, len(data.trials) + 1)
        right.step(order, _running_best(data), where="post", color=VALIDATION, linewidth=1.8)
        set_value_axis(left, data.metric, [trial.best(*data.objective) for trial in data.ranked])
        left.set_ylabel(data.metric.title)
        left.set_xlabel("worker-seconds of all trials")
        left.xaxis.set_major_formatter(lambda value, _: number(value))
        right.set_xlabel("trial")
        whole_numbers(right, len(data.trials))
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=6, fontsize=8.5)
        svg = svg_of(figure, "best so far")
    missing = sum(math.isnan(trial.best(*data.objective)) for trial in data.trials)
    note = "Each mark is a trial, with its own best value, where it ended or is now."
    note += f" Crosses at the bottom are trials without a result ({number(missing)})." if missing else ""
    return Plot(key="best", title=f"Best {data.metric.title} so far", svg=svg, note=note, is_wide=True)


def _running_best(data: SearchData) -> list[float]:
    """The best of the first 1, 2, … trials."""
    metric = Metric(name="", higher_is_better=data.objective[1] == "max")
    best, found = math.nan, []
    for trial in data.trials:
        value = math.nan if trial.status == "failed" else trial.best(*data.objective)
        best = value if metric.better(value, best) else best
        found.append(best)
    return found


def _trials(axes: Axes, data: SearchData, places: dict[str, float]) -> None:
    """Mark each trial's best value by its status; one without a value at the bottom."""
    bottom = axes.get_xaxis_transform()
    size = 26 if len(data.trials) <= 60 else 13
    for status, marker in _MARKERS.items():
        chosen = [trial for trial in data.trials if data.status(trial) == status]
        if not chosen:
            continue
        colour, label = STATUS_COLOURS[status], f"{status} ({number(len(chosen))})"
        points = [(places[trial.id], trial.best(*data.objective)) for trial in chosen]
        known = [(x, y) for x, y in points if not math.isnan(y)]
        axes.scatter(
            [x for x, _ in known], [y for _, y in known], marker=marker, s=size, color=colour, label=label, zorder=3
        )
        unknown = [x for x, y in points if math.isnan(y)]
        axes.scatter(unknown, [0.02] * len(unknown), marker="x", s=size, color=colour, transform=bottom, zorder=3)


def pareto(data: SearchData) -> Plot | None:
    """Every pair of objectives, with the trials that no other beats in all of them."""
    if len(data.objectives) < 2:
        return None
    front = data.front()
    if not front:
        return None
    pairs = list(combinations(range(len(data.objectives)), 2))[:3]
    others = [trial for trial in data.trials if trial.id not in {one.id for one in front}]
    with figure_of((FULL_WIDTH[0], 4.0)) as figure:
        for axes, (first, second) in zip(np.atleast_1d(figure.subplots(1, len(pairs))), pairs, strict=True):
            _pair(axes, data, (first, second), front, others)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8.5)
        svg = svg_of(figure, "Pareto front")
    note = "Than a trial on the front, no other is better in one objective without being worse in another. "
    note += "Each mark is a trial's newest evaluation."
    return Plot(key="pareto", title=f"Pareto front: {counted(len(front), 'trial')}", svg=svg, note=note, is_wide=True)


def _pair(
    axes: Axes, data: SearchData, pair: tuple[int, int], front: list[TrialHistory], others: list[TrialHistory]
) -> None:
    first, second = pair
    for status, colour in STATUS_COLOURS.items():
        points = [data.point(trial) for trial in others if data.status(trial) == status]
        if points:
            xs, ys = [point[first] for point in points], [point[second] for point in points]
            axes.scatter(xs, ys, marker=_MARKERS[status], s=20, color=colour, alpha=0.7, label=status)
    best = sorted(data.point(trial) for trial in front)
    xs, ys = [point[first] for point in best], [point[second] for point in best]
    line = "-" if len(data.objectives) == 2 else "none"
    axes.plot(xs, ys, linestyle=line, color=VALIDATION, marker="o", markersize=6, linewidth=1.2, label="Pareto front")
    _label(axes, {trial.id: (data.point(trial)[first], data.point(trial)[second]) for trial in front})
    points = [data.point(trial) for trial in [*front, *others]]
    for axis, set_label, index in ((axes.xaxis, axes.set_xlabel, first), (axes.yaxis, axes.set_ylabel, second)):
        name, mode = data.objectives[index]
        metric = data.texts.find(name)
        set_label(f"{metric.title} ({mode})")
        values = [point[index] for point in points if math.isfinite(point[index])]
        if metric.is_ratio:
            axis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
        elif values and min(values) > 0 and max(values) / min(values) > 30:
            axis.axes.set(**{"xscale" if axis is axes.xaxis else "yscale": "log"})
        else:
            axis.set_major_formatter(lambda value, _: number(value))


def _label(axes: Axes, points: dict[str, tuple[float, float]]) -> None:
    """Name points, of those that are close to each other only the first."""
    box = axes.dataLim
    named: list[tuple[float, float]] = []
    for name, (x, y) in points.items():
        close = (abs(x - x0) < 0.1 * box.width and abs(y - y0) < 0.05 * box.height for x0, y0 in named)
        if not any(close):
            named.append((x, y))
            axes.annotate(name, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=INK)


def learning_curves(data: SearchData) -> Plot | None:
    """The first objective over the epochs of every trial."""
    if not any(trial.reports for trial in data.trials):
        return None
    curves = {trial.id: data.values(trial) for trial in data.trials}
    if not any(curves.values()):
        return None
    alpha = 0.75 if len(curves) <= 20 else 0.4 if len(curves) <= 80 else 0.25
    with figure_of((FULL_WIDTH[0], 3.6)) as figure:
        axes = figure.subplots()
        for status, colour in STATUS_COLOURS.items():
            chosen = [curves[trial.id] for trial in data.trials if data.status(trial) == status and curves[trial.id]]
            if not chosen:
                continue
            axes.add_collection(LineCollection(chosen, colors=colour, linewidths=0.9, alpha=alpha))
            ends = [curve[-1] for curve in chosen]
            axes.scatter(
                [x for x, _ in ends],
                [y for _, y in ends],
                s=16,
                marker=_MARKERS[status],
                color=colour,
                label=f"{status} ({len(chosen)})",
                zorder=3,
            )
        if data.best is not None:
            curve = data.curve(data.best)
            axes.plot(
                [x for x, _ in curve],
                [y for _, y in curve],
                color=VALIDATION,
                linewidth=2.2,
                label=f"best: {data.best.id}",
                zorder=4,
            )
        set_value_axis(axes, data.metric, [value for curve in curves.values() for _, value in curve])
        axes.set_ylabel(data.metric.title)
        axes.set_xlabel("epoch")
        whole_numbers(axes, max(trial.epoch for trial in data.trials))
        figure.legend(loc="outside right upper", fontsize=8.5)
        svg = svg_of(figure, "learning curves")
    note = "A curve ends where its trial ended or is now."
    if data.is_population:
        note += " The best curve is that of the weights: it begins with the trials that they were copied from."
    return Plot(key="curves", title="Learning curves", svg=svg, note=note, is_wide=True)


def cost(data: SearchData) -> Plot | None:
    """Worker-seconds, or dollars, of every trial."""
    if len(data.trials) < 2 or not any(trial.worker_seconds for trial in data.trials):
        return None
    factor = 1.0 if data.price is None else data.price / 3600
    with figure_of(HALF_WIDTH) as figure:
        axes = figure.subplots()
        for status, colour in STATUS_COLOURS.items():
            chosen = [(index, one) for index, one in enumerate(data.trials, 1) if data.status(one) == status]
            if chosen:
                heights = [trial.worker_seconds * factor for _, trial in chosen]
                axes.bar([index for index, _ in chosen], heights, color=colour, width=0.8, label=status)
        axes.set_ylabel("worker-seconds" if data.price is None else "dollars")
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
        axes.set_xlabel("trial")
        axes.grid(visible=False, axis="x")
        whole_numbers(axes, len(data.trials))
        figure.legend(loc="outside upper center", ncols=5, fontsize=8.5)
        return Plot(key="cost", title="Cost per trial", svg=svg_of(figure, "cost per trial"))


def set_value_axis(axes: Axes, metric: Metric, values: list[float]) -> None:
    """Percent for a ratio; a logarithmic axis if a linear one would hide the small values."""
    if metric.is_ratio:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
    else:
        choose_scale(axes, np.array(values, dtype=np.float64))


def whole_numbers(axes: Axes, last: int) -> None:
    """An x-axis of whole numbers from 1."""
    axes.set_xlim(0.4, last + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
