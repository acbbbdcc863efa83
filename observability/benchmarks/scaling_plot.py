"""The plot of a scaling benchmark: throughput by workers, and efficiency against independent processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from observability.benchmarks.scaling import SIDES, ScalingPoint, Side

_COLOURS: Mapping[Side, str] = {
    "platform": "#3366cc",
    "independent": "#888888",
    "bare DDP": "#dc7633",
    "Ray's loop": "#7d3c98",
}


def draw(points: Sequence[ScalingPoint], file: Path) -> None:
    """Write the plot; the format is that of the file's suffix. Error bars span the rounds."""
    figure = Figure(figsize=(10.0, 4.0), layout="constrained", dpi=120)
    throughput, efficiency = figure.subplots(1, 2)
    workers = [point.workers for point in points]
    for side in SIDES:
        medians = [point.median(side) for point in points]
        below = [middle - min(point.throughput[side]) for middle, point in zip(medians, points, strict=True)]
        above = [max(point.throughput[side]) - middle for middle, point in zip(medians, points, strict=True)]
        style = "--" if side == "independent" else "-"
        throughput.errorbar(
            workers,
            medians,
            yerr=[below, above],
            label=side,
            color=_COLOURS[side],
            linestyle=style,
            marker="o",
            capsize=3,
        )
        if side != "independent":
            values = [point.efficiency(side) for point in points]
            efficiency.plot(workers, values, label=side, color=_COLOURS[side], marker="o")
    throughput.set(xlabel="workers", ylabel="samples per second", title="Throughput", ylim=(0, None))
    efficiency.axhline(1.0, color=_COLOURS["independent"], linestyle="--", label="independent processes")
    efficiency.set(xlabel="workers", title="Efficiency against independent processes", ylim=(0, 1.15))
    efficiency.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes in (throughput, efficiency):
        _finish(axes, workers)
    figure.savefig(file)


def _finish(axes: Axes, workers: Sequence[int]) -> None:
    axes.set_xticks(list(workers))
    axes.grid(visible=True, linewidth=0.5, alpha=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
