"""The plot of a fleet benchmark: memory over time, and the groups of rules that take longest."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from observability.benchmarks.fleet.measure import Result

_GROUPS = 8


def draw(result: Result, file: Path, *, request_bytes: int) -> None:
    """Write the plot; the format is that of the file's suffix."""
    figure = Figure(figsize=(10.0, 4.0), layout="constrained", dpi=120)
    memory, rules = figure.subplots(1, 2)
    start = result.moments[0].seconds
    minutes = [(moment.seconds - start) / 60 for moment in result.moments]
    memory.plot(minutes, [moment.resident / 2**30 for moment in result.moments], label="resident", color="#3366cc")
    memory.plot(minutes, [moment.anonymous / 2**30 for moment in result.moments], label="anonymous", color="#7d3c98")
    memory.axhline(request_bytes / 2**30, label="request of the stack", color="#dc7633", linestyle="--")
    memory.set(xlabel="minutes", ylabel="GiB", ylim=(0, None), title=f"Memory of Prometheus, {result.series:,} series")
    memory.legend(loc="best", frameon=False)
    slowest = list(reversed(list(result.slowest_groups().items())[:_GROUPS]))
    rules.barh(
        [name for name, _ in slowest], [longest for _, (_, longest) in slowest], color="#a9c1ea", label="longest"
    )
    rules.barh([name for name, _ in slowest], [median for _, (median, _) in slowest], color="#3366cc", label="median")
    rules.set(xlabel="seconds", title="Evaluation of a group of rules")
    rules.legend(loc="lower right", frameon=False)
    for axes in (memory, rules):
        axes.grid(visible=True, linewidth=0.5, alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
