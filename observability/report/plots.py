"""The report's plots; one function per plot turns a run's history into an SVG."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from observability.history import PARTS, RunHistory, part_seconds, units_of
from observability.objective_metrics import Metric
from observability.quantities import duration
from observability.report.axes import choose_scale, edges, finish_axes, marker, plot_training, plot_validation
from observability.report.drawing import FULL_WIDTH, HALF_WIDTH, Plot, figure_of, svg_of
from observability.report.palette import INK, MUTED, PART_COLOURS, TEST, TRAIN, VALIDATION
from observability.report.series import grouped, smoothing_window, startup_spans, values_of


def draw_plots(history: RunHistory) -> list[Plot]:
    """The plots for which the run has data, in page order."""
    makers: list[Callable[[RunHistory], Plot]] = []
    if history.steps:
        makers += [partial(_metric, metric) for metric in history.objective.metrics]
        makers += [_throughput, _optimization, _step_time]
    if startup_spans(history):
        makers.append(_startup)
    if history.checkpoints:
        makers.append(_checkpoints)
    return [make(history) for make in makers]


def _metric(metric: Metric, history: RunHistory) -> Plot:
    """A metric of the objective in training, on the validation split, and of the final weights on the test split."""
    values = values_of(history.steps, lambda step: step.value(metric.name))
    test = history.test_evaluation()
    with figure_of(HALF_WIDTH) as figure:
        axes = figure.subplots()
        group = plot_training(axes, history, values)
        plot_validation(axes, history, lambda evaluation: evaluation.value(metric.name))
        if test is not None and metric == history.objective.headline:
            value = test.value(metric.name)
            axes.axhline(value, color=TEST, linestyle=(0, (5, 3)), linewidth=1.3, label="test, final weights")
        if metric.is_ratio:
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
        else:
            choose_scale(axes, values)
        legend = "lower right" if metric.higher_is_better else "upper right"
        finish_axes(axes, history, ylabel=metric.label or metric.title, legend=legend)
        svg = svg_of(figure, metric.title)
        return Plot(key=metric.name, title=metric.title.capitalize(), svg=svg, note=_note(group))


def _throughput(history: RunHistory) -> Plot:
    speeds = values_of(history.steps, lambda step: units_of(step) / step.seconds)
    # Longer runs are averaged over an epoch, because the smaller last batch of an epoch causes ripples.
    epoch = history.training.steps_per_epoch if history.training else 0
    window = max(smoothing_window(len(speeds)), min(epoch, len(speeds) // 8))
    with figure_of(HALF_WIDTH) as figure:
        axes = figure.subplots()
        group = plot_training(axes, history, speeds, window=window)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        finish_axes(axes, history, ylabel=f"{history.objective.unit} per second, all ranks", legend="lower right")
        note = "Wall time of steps on rank 0, without evaluations. The last batch of an epoch may be smaller. "
        return Plot(key="throughput", title="Throughput", svg=svg_of(figure, "throughput"), note=note + _note(group))


def _optimization(history: RunHistory) -> Plot:
    numbers = values_of(history.steps, lambda step: step.step)
    rates = grouped(numbers, values_of(history.steps, lambda step: step.learning_rate))
    norms = values_of(history.steps, lambda step: step.gradient_norm)
    clip = history.setting("loop.clip_norm")
    with figure_of(HALF_WIDTH) as figure:
        upper, lower = figure.subplots(2, sharex=True)
        upper.plot(rates.step, rates.mean, color=VALIDATION, linewidth=1.5, marker=marker(rates.mean), markersize=3)
        upper.yaxis.set_major_locator(MaxNLocator(3))
        upper.yaxis.set_major_formatter("{x:g}")
        finish_axes(upper, history, ylabel="learning rate", xlabel="", legend="")
        group = plot_training(lower, history, norms)
        if clip is not None:
            lower.axhline(clip, color=TEST, linestyle=(0, (5, 3)), linewidth=1.1, label=f"clip norm {clip:g}")
        lower.yaxis.set_major_locator(MaxNLocator(3))
        finish_axes(lower, history, ylabel="gradient norm")
        svg = svg_of(figure, "learning rate and gradient norm")
        return Plot(key="optimization", title="Learning rate and gradient norm", svg=svg, note=_note(group))


def _step_time(history: RunHistory) -> Plot:
    numbers = values_of(history.steps, lambda step: step.step)
    table = np.array([part_seconds(step) for step in history.steps])
    columns = [grouped(numbers, table[:, index]) for index in range(len(PARTS))]
    with figure_of(FULL_WIDTH) as figure:
        axes = figure.subplots()
        totals = np.zeros(len(columns[0].step))
        for column, colour, part in zip(columns, PART_COLOURS, PARTS, strict=True):
            below, totals = totals, totals + column.mean * 1e3
            axes.stairs(totals, edges(columns[0]), baseline=below, fill=True, color=colour, linewidth=0, label=part)
        # A few slow steps, such as the first, must not flatten all others.
        axes.set_ylim(0, 1.25 * float(np.percentile(totals, 98)))
        finish_axes(axes, history, ylabel="milliseconds per step, rank 0", legend="")
        figure.legend(loc="outside right upper", reverse=True)
        cut = int((totals > axes.get_ylim()[1]).sum())
        note = f"{cut} of {len(totals)} points exceed the y-axis. " if cut else ""
        if columns[0].group > 1:
            note += f"Each point is the mean of {columns[0].group} steps."
        svg = svg_of(figure, "step time by part")
        return Plot(key="step-time", title="Step time by part", svg=svg, note=note, is_wide=True)


def _startup(history: RunHistory) -> Plot:
    spans = startup_spans(history)
    with figure_of((FULL_WIDTH[0], 0.9 + 0.3 * len(spans))) as figure:
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
        return Plot(key="startup", title=title, svg=svg_of(figure, "start-up"), is_wide=True)


def _checkpoints(history: RunHistory) -> Plot:
    committed = history.checkpoints
    steps = [checkpoint.step for checkpoint in committed]
    stalls = np.array([checkpoint.stall_seconds for checkpoint in committed]) * 1e3
    writes = np.array([checkpoint.write_seconds for checkpoint in committed]) * 1e3
    with figure_of(HALF_WIDTH) as figure:
        axes = figure.subplots()
        for label, colour, milliseconds in (
            ("write, in the background", VALIDATION, writes),
            ("stall of the training loop", TRAIN, stalls),
        ):
            (line,) = axes.plot(steps, milliseconds, color=colour, linewidth=1.0, label=label)
            line.set(marker=marker(milliseconds), markersize=4)
        choose_scale(axes, np.concatenate([stalls, writes]), bottom=0)
        finish_axes(axes, history, ylabel="milliseconds", legend="")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
        return Plot(key="checkpoints", title="Checkpoint time", svg=svg_of(figure, "checkpoint time"))


def _note(group: int) -> str:
    if group == 1:
        return ""
    return f"The band shows the minimum and maximum of every {group} consecutive steps."
