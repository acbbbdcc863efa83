"""Plots of what a scheduler did: trials that survived each epoch, and for a population who copied whom and how settings changed."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from observability.quantities import counted, number, percent
from observability.report.drawing import FULL_WIDTH, HALF_WIDTH, Plot, figure_of, svg_of
from observability.report.palette import GRID, INK, TRAIN, VALIDATION
from tune.report.data import STOPPING, SearchData
from tune.report.outcome_plots import whole_numbers
from tune.report.scales import Numbers, Scale, scale_of, shortened
from tune.texts import short_names

_LABELLED_ROWS = 40
_ARROWS = 150
_PANELS_PER_ROW = 3


def survival(data: SearchData) -> Plot | None:
    """How many trials reached each epoch, and what stopping the others saved."""
    if data.scheduler not in STOPPING or len(data.trials) < 2 or not any(trial.reports for trial in data.trials):
        return None
    reached = data.survival()
    edges = np.arange(len(reached) + 1) + 0.5
    with figure_of(HALF_WIDTH) as figure:
        axes = figure.subplots()
        axes.stairs([len(data.trials)] * len(reached), edges, color=GRID, fill=True, label="all epochs of all trials")
        axes.stairs(reached, edges, color=TRAIN, fill=True, alpha=0.85, label="trained")
        for index, rung in enumerate(data.rungs()):
            label = "rung" if index == 0 else None
            axes.axvline(rung + 0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1.0, label=label)
            axes.annotate(
                number(reached[rung - 1]), (rung, reached[rung - 1]), xytext=(0, 3), textcoords="offset points",
                ha="center", fontsize=8.5, color=INK,
            )  # fmt: skip
        axes.set_ylabel("trials that trained the epoch")
        axes.set_xlabel("epoch")
        axes.set_ylim(0, len(data.trials) * 1.08)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        whole_numbers(axes, len(reached))
        figure.legend(loc="outside upper center", ncols=3, fontsize=8.5)
        svg = svg_of(figure, "trials by epoch")
    return Plot(key="survival", title="Trials that survived each epoch", svg=svg, note=_saved(data))


def _saved(data: SearchData) -> str:
    """What has been trained of all epochs of the trials that ended without a failure."""
    ended = [trial for trial in data.trials if trial.status in {"done", "stopped"}]
    trained, planned = sum(trial.epoch for trial in ended), sum(map(data.history.epochs_of, ended))
    if not planned:
        return ""
    return (
        f"Of the epochs of {counted(len(ended), 'trial')} that ended without a failure, {number(trained)} of {number(planned)} were "
        f"trained: {percent(1 - trained / planned)} were saved."
    )


def lineage(data: SearchData) -> Plot | None:
    """Who copied whom after which epoch; the ancestry of the best trial is marked."""
    rows = {trial.id: row for row, trial in enumerate(data.trials)}
    copies = [one for one in data.copies() if one.donor in rows]
    if not copies:
        return None
    ancestry = data.ancestry(data.best) if data.best else []
    height = min(9.0, max(2.2, 1.0 + 0.2 * len(rows)))
    with figure_of((FULL_WIDTH[0], height)) as figure:
        axes = figure.subplots()
        width = min(3.0, 120 / len(rows))
        whole = [[(0, row), (data.history.trials[key].epoch, row)] for key, row in rows.items()]
        axes.add_collection(LineCollection(whole, colors=GRID, linewidths=width))
        lines = [[(start, rows[trial]), (end, rows[trial])] for trial, start, end in ancestry if trial in rows]
        axes.add_collection(LineCollection(lines, colors=VALIDATION, linewidths=3, zorder=4))
        on_path = {(trial, start) for trial, start, _ in ancestry[1:]}
        _arrows(
            axes, [(one.epoch, rows[one.donor], rows[one.trial], (one.trial, one.epoch) in on_path) for one in copies]
        )
        every = -(-len(rows) // _LABELLED_ROWS)
        shown = [(row, key) for key, row in rows.items() if row % every == 0]
        axes.set_yticks([row for row, _ in shown], [key for _, key in shown])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(visible=False, axis="y")
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(-0.2, data.epochs + 0.3), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
        svg = svg_of(figure, "lineage")
    best = f" Marked: how the weights of the best trial, {data.best.id}, were trained." if data.best else ""
    note = f"{counted(len(copies), 'exploitation')}. An arrow points from a trial to the one that continued from its checkpoint.{best}"
    return Plot(key="lineage", title="Lineage", svg=svg, note=note, is_wide=True)


def _arrows(axes: Axes, copies: list[tuple[int, int, int, bool]]) -> None:
    """Arrows at an epoch from the row of a donor to that of its clone; so many that they would merge are faint lines."""
    is_crowded = len(copies) > _ARROWS
    if is_crowded:
        faint = [[(epoch, donor), (epoch, clone)] for epoch, donor, clone, _ in copies]
        axes.add_collection(LineCollection(faint, colors=TRAIN, linewidths=0.8, alpha=0.15))
    for epoch, donor, clone, is_best in copies:
        if is_crowded and not is_best:
            continue
        arrow = {
            "arrowstyle": "-|>",
            "color": VALIDATION if is_best else TRAIN,
            "linewidth": 1.8 if is_best else 1.0,
            "shrinkA": 0,
            "shrinkB": 0,
            "mutation_scale": 9,
        }
        axes.annotate("", (epoch, clone), (epoch, donor), arrowprops=arrow, zorder=5 if is_best else 3)


def schedules(data: SearchData) -> Plot | None:
    """The values over the epochs with which the weights of each trial that has not failed were trained."""
    keys = data.perturbed()
    trials = [trial for trial in data.ranked if trial.epoch]
    if not keys or not trials:
        return None
    columns = min(_PANELS_PER_ROW, len(keys))
    rows = -(-len(keys) // columns)
    with figure_of((FULL_WIDTH[0], 2.7 * rows)) as figure:
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, key in zip(panels, keys, strict=False):
            _schedule(axes, data, key)
        for axes in panels[len(keys) :]:
            axes.axis("off")
        svg = svg_of(figure, "schedules")
    note = "Each line shows with which values the weights of a trial were trained, also by those it copied. "
    note += f"Marked: {trials[0].id}, the best."
    return Plot(key="schedules", title="Schedules of the settings", svg=svg, note=note, is_wide=True)


def _schedule(axes: Axes, data: SearchData, key: str) -> None:
    scale = _zoomed(
        scale_of(data.axes[key]),
        [value for trial in data.ranked for _, _, value in data.steps(trial, key)],
    )
    alpha = 0.6 if len(data.ranked) <= 20 else 0.25
    for rank, trial in reversed(list(enumerate(data.ranked))):
        points = []
        for start, end, value in data.steps(trial, key):
            if (place := scale.place(value)) is not None:
                points += [(start, place), (end, place)]
        (line,) = axes.plot([x for x, _ in points], [y for _, y in points], color=TRAIN, linewidth=1.0, alpha=alpha)
        if rank == 0:
            line.set(color=VALIDATION, linewidth=2.2, alpha=1.0, zorder=4)
    ticks = scale.ticks()
    axes.set_yticks([place for place, _ in ticks], [label for _, label in ticks])
    is_log = isinstance(scale, Numbers) and scale.is_log
    title = shortened(short_names(data.axes)[key], 40)
    axes.set_title(f"{title}, logarithmic" if is_log else title, loc="left", fontsize=9.5)
    axes.set(ylim=(-0.04, 1.04), xlabel="epoch", xlim=(0, data.epochs))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def _zoomed(scale: Scale, values: list[object]) -> Scale:
    """The part of a scale of numbers that these values need."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if not isinstance(scale, Numbers) or not numbers or min(numbers) == max(numbers):
        return scale
    return Numbers(low=min(numbers), high=max(numbers), is_log=scale.is_log)
