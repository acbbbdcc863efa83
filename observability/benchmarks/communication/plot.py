"""The plot of the results: the time of a step with what of it is communication, and the bytes of a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from observability.benchmarks.communication.measure import Measured

_COMPUTE = "#3366cc"
_EXPOSED = "#dc7633"
_COMPUTED = "#333333"
_COUNTED = "#2e8b57"


def draw(results: Sequence[Measured], file: Path, *, title: str) -> None:
    """Write the plot; the format is that of the file's suffix. Error bars span the rounds."""
    figure = Figure(figsize=(11.0, 1.6 + 0.38 * len(results)), layout="constrained", dpi=120)
    figure.suptitle(title)
    times, sizes = figure.subplots(1, 2, sharey=True)
    _draw_times(times, results)
    _draw_sizes(sizes, results)
    times.set_yticks(range(len(results)), [one.case.name for one in results])
    times.invert_yaxis()
    for axes in (times, sizes):
        axes.grid(visible=True, axis="x", linewidth=0.5, alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    figure.savefig(file)


def _draw_times(axes: Axes, results: Sequence[Measured]) -> None:
    """Milliseconds per 1,024 samples, and the ratio to the baseline at the end of each bar."""
    medians = [1000 * one.median(lambda each: each.per_batch) for one in results]
    exposed = [
        total * one.median(lambda each: each.profiled_exposed / each.profiled_seconds)
        for total, one in zip(medians, results, strict=True)
    ]
    places = range(len(results))
    hidden = [total - part for total, part in zip(medians, exposed, strict=True)]
    axes.barh(places, hidden, color=_COMPUTE, label="the rest of the step")
    ranges = [[1000 * each.per_batch for each in one.rounds] for one in results]
    errors = (
        [middle - min(each) for middle, each in zip(medians, ranges, strict=True)],
        [max(each) - middle for middle, each in zip(medians, ranges, strict=True)],
    )
    axes.barh(places, exposed, left=hidden, color=_EXPOSED, xerr=errors, capsize=2, label="exposed communication")
    for place, one, each in zip(places, results, ranges, strict=True):
        text = "1" if one.baseline is None else f"{median(one.ratios):.2f}"
        axes.annotate(text, (max(each), place), xytext=(6, 0), textcoords="offset points", va="center")
    axes.set(xlabel="ms for 1,024 samples; the number is the ratio to plain", title="Time", xlim=(0, None))
    axes.margins(x=0.12)


def _draw_sizes(axes: Axes, results: Sequence[Measured]) -> None:
    """Points, because bars have no length on a logarithmic axis."""
    places = range(len(results))
    computed = [one.expected_bytes / 1000 for one in results]
    axes.plot(computed, places, "|", markersize=18, markeredgewidth=2.0, color=_COMPUTED, label="computed")
    counted = [one.median(lambda each: each.payload) / 1000 for one in results]
    axes.plot(counted, places, "o", markersize=7, color=_COUNTED, label="counted, without headers")
    axes.set(xscale="log", xlabel="kB that a host sends in a step", title="Bytes")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
