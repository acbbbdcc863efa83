"""The report's plots; one function per plot turns a run's history into an SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from observability.history import PARTS, RunHistory, part_seconds
from observability.quantities import duration, number
from observability.report.palette import CARD, GRID, INK, MUTED, PART_COLOURS, TEST, TRAIN, VALIDATION, with_css_vars
from observability.report.series import Floats, centred_mean, grouped, smoothing_window, startup_spans, values_of
from observability.runlog import Evaluated

_HALF_WIDTH = (6.0, 3.3)
_FULL_WIDTH = (12.4, 3.1)
_MARKED_POINTS = 60
_LOG_SCALE_RATIO = 30.0
"""Ratio of the largest to the smallest value above which the axis becomes logarithmic."""

_STYLE = {
    "svg.fonttype": "none",
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0.015,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.facecolor": CARD,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.labelcolor": INK,
    "font.size": 9.0,
    "font.family": "sans-serif",
}


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot of the page.

    Attributes:
        key: identifier, unique in the page.
        svg: an `<svg>` element whose colours are CSS variables of the page.
        note: text below the plot; may be empty.
        is_wide: the plot takes the full width of the page.
    """

    key: str
    title: str
    svg: str
    note: str = ""
    is_wide: bool = False


@contextmanager
def _figure(size: tuple[float, float]) -> Iterator[Figure]:
    with mpl.rc_context(_STYLE):
        yield Figure(figsize=size, layout="constrained")


def _svg(figure: Figure, name: str) -> str:
    """Render a figure as an `<svg>` element for a page: without prolog, metadata, fixed size and group ids."""
    with mpl.rc_context({"svg.hashsalt": name}):
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Creator": None, "Date": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return with_css_vars(text.replace("<svg", f'<svg role="img" aria-label="{name}"', 1))


def draw_plots(history: RunHistory) -> list[Plot]:
    """The plots for which the run has data, in page order."""
    makers: list[Callable[[RunHistory], Plot]] = []
    if history.steps:
        makers += [_loss, _accuracy, _throughput, _optimization, _step_time]
    if startup_spans(history):
        makers.append(_startup)
    if history.checkpoints:
        makers.append(_checkpoints)
    return [make(history) for make in makers]


def _loss(history: RunHistory) -> Plot:
    losses = values_of(history.steps, lambda step: step.loss)
    with _figure(_HALF_WIDTH) as figure:
        axes = figure.subplots()
        group = _plot_training(axes, history, losses)
        _plot_validation(axes, history, lambda evaluation: evaluation.loss)
        _choose_scale(axes, losses)
        _finish_axes(axes, history, ylabel="cross-entropy (nats)")
        return Plot(key="loss", title="Loss", svg=_svg(figure, "loss"), note=_note(group))


def _accuracy(history: RunHistory) -> Plot:
    accuracies = values_of(history.steps, lambda step: step.accuracy)
    test = history.test_evaluation()
    with _figure(_HALF_WIDTH) as figure:
        axes = figure.subplots()
        group = _plot_training(axes, history, accuracies)
        _plot_validation(axes, history, lambda evaluation: evaluation.accuracy)
        if test is not None:
            axes.axhline(test.accuracy, color=TEST, linestyle=(0, (5, 3)), linewidth=1.3, label="test, final weights")
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
        _finish_axes(axes, history, ylabel="accuracy", legend="lower right")
        return Plot(key="accuracy", title="Accuracy", svg=_svg(figure, "accuracy"), note=_note(group))


def _throughput(history: RunHistory) -> Plot:
    speeds = values_of(history.steps, lambda step: step.samples / step.seconds)
    # Longer runs are averaged over an epoch, because the smaller last batch of an epoch causes ripples.
    epoch = history.training.steps_per_epoch if history.training else 0
    window = max(smoothing_window(len(speeds)), min(epoch, len(speeds) // 8))
    with _figure(_HALF_WIDTH) as figure:
        axes = figure.subplots()
        group = _plot_training(axes, history, speeds, window=window)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        _finish_axes(axes, history, ylabel="samples per second, all ranks", legend="lower right")
        note = "Wall time of steps on rank 0, without evaluations. The last batch of an epoch may be smaller. "
        return Plot(key="throughput", title="Throughput", svg=_svg(figure, "throughput"), note=note + _note(group))


def _optimization(history: RunHistory) -> Plot:
    numbers = values_of(history.steps, lambda step: step.step)
    rates = grouped(numbers, values_of(history.steps, lambda step: step.learning_rate))
    norms = values_of(history.steps, lambda step: step.gradient_norm)
    clip = history.setting("loop.clip_norm")
    with _figure(_HALF_WIDTH) as figure:
        upper, lower = figure.subplots(2, sharex=True)
        upper.plot(rates.step, rates.mean, color=VALIDATION, linewidth=1.5)
        upper.yaxis.set_major_locator(MaxNLocator(3))
        upper.yaxis.set_major_formatter("{x:g}")
        _finish_axes(upper, history, ylabel="learning rate", xlabel="", legend="")
        group = _plot_training(lower, history, norms)
        if clip is not None:
            lower.axhline(clip, color=TEST, linestyle=(0, (5, 3)), linewidth=1.1, label=f"clip norm {clip:g}")
        lower.yaxis.set_major_locator(MaxNLocator(3))
        _finish_axes(lower, history, ylabel="gradient norm")
        svg = _svg(figure, "learning rate and gradient norm")
        return Plot(key="optimization", title="Learning rate and gradient norm", svg=svg, note=_note(group))


def _step_time(history: RunHistory) -> Plot:
    numbers = values_of(history.steps, lambda step: step.step)
    table = np.array([part_seconds(step) for step in history.steps])
    columns = [grouped(numbers, table[:, index]) for index in range(len(PARTS))]
    with _figure(_FULL_WIDTH) as figure:
        axes = figure.subplots()
        axes.stackplot(
            columns[0].step,
            *(column.mean * 1e3 for column in columns),
            colors=PART_COLOURS,
            labels=PARTS,
            linewidth=0,
        )
        # A few slow steps, such as the first, must not flatten all others.
        totals = np.sum([column.mean for column in columns], axis=0) * 1e3
        axes.set_ylim(0, 1.25 * float(np.percentile(totals, 98)))
        _finish_axes(axes, history, ylabel="milliseconds per step, rank 0", legend="")
        figure.legend(loc="outside right upper", reverse=True)
        cut = int((totals > axes.get_ylim()[1]).sum())
        note = f"{cut} of {len(totals)} points exceed the y-axis. " if cut else ""
        if columns[0].group > 1:
            note += f"Each point is the mean of {columns[0].group} steps."
        svg = _svg(figure, "step time by part")
        return Plot(key="step-time", title="Step time by part", svg=svg, note=note, is_wide=True)


def _startup(history: RunHistory) -> Plot:
    spans = startup_spans(history)
    with _figure((_FULL_WIDTH[0], 0.9 + 0.3 * len(spans))) as figure:
        axes = figure.subplots()
        for row, span in enumerate(spans):
            colour = VALIDATION if span.process == "driver" else TRAIN
            axes.barh(row, span.end - span.start, left=span.start, color=colour, height=0.62)
            axes.annotate(
                duration(span.end - span.start),
                (span.end, row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                fontsize=8.5,
            )
        axes.set_yticks(range(len(spans)), [f"{span.name} ({span.process})" for span in spans])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, spans[-1].end * 1.08)
        axes.set_xlabel("seconds since the settings were accepted")
        title = f"Start-up: {duration(spans[-1].end)} to the end of the first step"
        if spans[-1].name != "first step":
            title = f"Start-up: {duration(spans[-1].end)}, no step completed"
        return Plot(key="startup", title=title, svg=_svg(figure, "start-up"), is_wide=True)


def _checkpoints(history: RunHistory) -> Plot:
    committed = history.checkpoints
    steps = [checkpoint.step for checkpoint in committed]
    stalls = np.array([checkpoint.stall_seconds for checkpoint in committed]) * 1e3
    writes = np.array([checkpoint.write_seconds for checkpoint in committed]) * 1e3
    marker = "o" if len(committed) <= _MARKED_POINTS else ""
    with _figure(_HALF_WIDTH) as figure:
        axes = figure.subplots()
        for label, colour, milliseconds in (
            ("write, in the background", VALIDATION, writes),
            ("stall of the training loop", TRAIN, stalls),
        ):
            axes.plot(steps, milliseconds, color=colour, marker=marker, markersize=4, linewidth=1.0, label=label)
        axes.set_ylim(bottom=0)
        _choose_scale(axes, np.concatenate([stalls, writes]))
        _finish_axes(axes, history, ylabel="milliseconds", legend="")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
        return Plot(key="checkpoints", title="Checkpoint time", svg=_svg(figure, "checkpoint time"))


def _choose_scale(axes: Axes, values: Floats) -> None:
    """Use a logarithmic y-axis if a linear one would hide the small values."""
    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size and positive.max() / positive.min() > _LOG_SCALE_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if positive.max() / positive.min() < 1e3 else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _plot_validation(axes: Axes, history: RunHistory, value: Callable[[Evaluated], float]) -> None:
    """Draw a quantity of the validations over their steps."""
    validation = history.evaluations_of("validation")
    points = [evaluation.step for evaluation in validation], [value(evaluation) for evaluation in validation]
    axes.plot(*points, color=VALIDATION, marker="o", markersize=3.5, linewidth=1.4, label="validation")


def _plot_training(axes: Axes, history: RunHistory, values: Floats, *, window: int | None = None) -> int:
    """Draw a bold moving average of a quantity over a faint line of its values, or a band of their range if steps are grouped.

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
        axes.plot(raw.step, raw.mean, color=TRAIN, alpha=0.35, linewidth=0.8)
    else:
        axes.fill_between(raw.step, raw.low, raw.high, color=TRAIN, alpha=0.22, linewidth=0)
    window = window or smoothing_window(len(values))
    line = grouped(numbers, centred_mean(values, window))
    axes.plot(line.step, line.mean, color=TRAIN, linewidth=1.7, label=f"training, mean over {number(window)} steps")
    return raw.group


def _finish_axes(
    axes: Axes, history: RunHistory, *, ylabel: str, xlabel: str = "step", legend: str = "upper right"
) -> None:
    """Label the axes, mark restarts, and format steps as whole numbers."""
    for index, restart in enumerate(history.restarts):
        label = "restart" if index == 0 else None
        axes.axvline(restart.step + 0.5, color=INK, linestyle=(0, (1, 2)), linewidth=1.0, label=label)
    axes.set_ylabel(ylabel)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    if legend:
        axes.legend(loc=legend, fontsize=8.5)


def _note(group: int) -> str:
    if group == 1:
        return ""
    return f"The band shows the minimum and maximum of every {group} consecutive steps."
