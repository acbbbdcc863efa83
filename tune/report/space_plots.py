"""Plots of the space: which values were good (parallel coordinates) and which settings matter."""

from __future__ import annotations

import math
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from observability.quantities import percent
from observability.report.drawing import FULL_WIDTH, HALF_WIDTH, Plot, figure_of, svg_of
from observability.report.palette import CARD, GRID, INK, MUTED, TEST, TRAIN, VALIDATION
from tune.report.data import SearchData
from tune.report.importance import Importances
from tune.report.scales import Numbers, Scale, scale_of, shortened, wrapped
from tune.texts import short_names, varying

_AXES_PER_ROW = 7
_ABSENT = -0.2
_ROW_INCHES = 3.0


def parallel_coordinates(data: SearchData) -> Plot | None:
    """A line per trial through the values of its settings to its result."""
    keys = [key for key in data.axes if key in varying(data.trials)]
    results = {trial.id: trial.best(*data.objective) for trial in data.ranked}
    finite = [value for value in results.values() if math.isfinite(value)]
    if not keys or len(finite) < 2:
        return None
    count = -(-len(keys) // _AXES_PER_ROW)
    size = -(-len(keys) // count)
    rows = [keys[start : start + size] for start in range(0, len(keys), size)]
    result = Numbers.around(finite)
    with figure_of((FULL_WIDTH[0], _ROW_INCHES * len(rows))) as figure:
        for axes, row in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            _row(axes, data, row, result, size)
        svg = svg_of(figure, "parallel coordinates")
    note = f"Each line is a trial with a result that has not failed; the darker, the better, and the best ({data.ranked[0].id}) is marked."
    if any(key not in trial.values for trial in data.ranked for key in keys):
        note += " A line below an axis is a trial that the setting does not apply to."
    if data.is_population:
        note += " The values are those of the end."
    return Plot(key="parallel", title="Values and results", svg=svg, note=note, is_wide=True)


def _row(axes: Axes, data: SearchData, keys: list[str], result: Numbers, size: int) -> None:
    names = short_names(data.axes)
    scales: list[Scale] = [*(scale_of(data.axes[key]) for key in keys), result]
    lines = []
    for trial in reversed(data.ranked):  # the best on top
        values = [*(trial.values.get(key) for key in keys), trial.best(*data.objective)]
        absent = [key not in trial.values for key in keys] + [False]
        places = [
            None if gone else scale.place(value) for scale, value, gone in zip(scales, values, absent, strict=True)
        ]
        if places[-1] is not None:
            lines.append([(x, _ABSENT if place is None else place) for x, place in enumerate(places)])
    last = max(1, len(lines) - 1)
    sharpness = 2 if len(lines) <= 60 else 8  # many lines add up, so that only the best may be dark
    alphas = [0.1 + 0.7 * (index / last) ** sharpness for index in range(len(lines) - 1)]
    axes.add_collection(LineCollection(lines[:-1], colors=TRAIN, linewidths=1.1, alpha=alphas))
    axes.add_collection(LineCollection(lines[-1:], colors=VALIDATION, linewidths=2.4, zorder=4))
    titles = [*(wrapped(names[key]) for key in keys), fill(data.metric.title, 17)]
    for x, (scale, title) in enumerate(zip(scales, titles, strict=True)):
        axes.plot([x, x], [0, 1], color=MUTED, linewidth=1.0, zorder=2)
        is_result = x == len(scales) - 1
        axes.text(
            x, 1.06, title, ha="center", va="bottom", fontsize=8.5, color=INK, weight="bold" if is_result else None
        )
        for place, label in scale.ticks():
            text = f"{100 * float(label):g}%" if is_result and data.metric.is_ratio else label
            axes.plot([x - 0.012, x + 0.012], [place, place], color=MUTED, linewidth=1.0, zorder=2)
            box = {"facecolor": CARD, "edgecolor": "none", "alpha": 0.72, "pad": 0.8}
            axes.text(x + 0.03, place, text, ha="left", va="center", fontsize=8, color=MUTED, bbox=box, zorder=5)
    is_absent = any(y == _ABSENT for line in lines for _, y in line)
    if is_absent:
        axes.axhline(_ABSENT, color=GRID, linewidth=0.8, zorder=0)
        axes.text(-0.08, _ABSENT, "absent", ha="right", va="center", fontsize=8, color=MUTED)
    # Rows of different length have equal distances between their axes.
    axes.set(xlim=(-0.35, size + 0.4), ylim=((_ABSENT if is_absent else 0) - 0.05, 1.03))
    axes.axis("off")


def importance(data: SearchData, found: Importances) -> Plot | None:
    """How much each setting decides the result."""
    if not found.by_setting:
        return None
    names = short_names(data.axes)
    rows = list(found.by_setting.items())
    with figure_of((HALF_WIDTH[0], max(HALF_WIDTH[1], 0.8 + 0.26 * len(rows)))) as figure:
        axes = figure.subplots()
        axes.barh(range(len(rows)), [share for _, share in rows], color=TEST, height=0.62)
        for index, (_, share) in enumerate(rows):
            axes.annotate(
                percent(share),
                (share, index),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                fontsize=8.5,
            )
        axes.set_yticks(range(len(rows)), [shortened(names[key], 30) for key, _ in rows])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, max(found.by_setting.values()) * 1.18)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        svg = svg_of(figure, "importance of the settings")
    return Plot(key="importance", title="Importance of the settings", svg=svg, note=found.note)
