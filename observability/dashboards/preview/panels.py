"""Draws one panel of each form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter, date2num

from observability.alerts.catalog import ALERTS
from observability.alerts.model import Severity
from observability.dashboards.model import TITLES, Chart, Panel, Unit
from observability.dashboards.preview.source import Floats, Series
from observability.dashboards.preview.units import shown, ticks

INK, MUTED, GRID = "#d8d9da", "#8e9297", "#2c3235"
COLOURS = ("#73bf69", "#5794f2", "#f2cc0c", "#ff9830", "#b877d9", "#56b4c9", "#f2495c", "#8ab8ff", "#c0d8a8", "#d9a0c0")
_LIMITS: Mapping[Severity, str] = {Severity.PAGE: "#f2495c", Severity.TICKET: "#ff9830", Severity.INFO: "#f2cc0c"}
_GOOD = "#73bf69"
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MOST_NAMES = 6
_MOST_ROWS = 9
_SHORTENED = 34
"""Characters of a name in a legend."""

Results = Sequence[Sequence[Series]]
"""Series of each query of a panel."""


def draw(axes: Axes, panel: Panel, results: Results) -> None:
    """Draw the results of a panel's queries; a panel without data says so."""
    named = [
        (_name(query.legend, one.labels), one)
        for query, series in zip(panel.queries, results, strict=True)
        for one in series
    ]
    if not named:
        axes.axis("off")
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color=MUTED, transform=axes.transAxes)
    elif panel.chart is Chart.TABLE:
        _table(axes, panel, results)
    elif panel.chart is Chart.NUMBER:
        _number(axes, panel, named)
    elif panel.chart is Chart.BARS:
        _bars(axes, panel, named)
    else:
        _series(axes, panel, named)


def _name(legend: str, labels: Mapping[str, str]) -> str:
    found = _LABEL.sub(lambda label: labels.get(label[1], ""), legend).strip()
    return found if len(found) <= _SHORTENED else f"{found[: _SHORTENED - 1]}…"


def _colour_of(alert: str) -> str:
    (severity,) = (one.severity for one in ALERTS if one.name == alert)
    return _LIMITS[severity]


def _series(axes: Axes, panel: Panel, named: Sequence[tuple[str, Series]]) -> None:
    if panel.chart is Chart.STACK:
        _stack(axes, sorted(named, key=lambda one: -float(np.nansum(one[1].values))))
    else:
        for index, (name, one) in enumerate(named):
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(_dates(one.times), _finite(one.values), color=colour, linewidth=1.1, label=name)
    for limit in panel.limits:
        axes.axhline(limit.value, color=_colour_of(limit.alert), linestyle="--", linewidth=1)
    low, high = axes.get_ylim()
    bottom = low if panel.minimum is None else panel.minimum
    top = panel.maximum if panel.maximum is not None else high
    axes.set_ylim(bottom, top if top > bottom else bottom + 1)
    marks = ticks(bottom, max(top, bottom), panel.unit)
    axes.set_yticks(marks, [shown(mark, panel.unit) for mark in marks])
    axes.xaxis_date()
    axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=6))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    _legend(axes)


def _legend(axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    unique = {name: handle for handle, name in zip(handles, names, strict=True) if name}
    chosen = list(unique)[:_MOST_NAMES]
    texts = [*chosen[:-1], f"{chosen[-1]}  (+{len(unique) - len(chosen)})"] if len(unique) > len(chosen) else chosen
    if texts:
        axes.legend(
            [unique[name] for name in chosen], texts, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3,
            fontsize=7, frameon=False, labelcolor=INK, handlelength=1, columnspacing=1, borderaxespad=0,
        )  # fmt: skip


def _stack(axes: Axes, named: Sequence[tuple[str, Series]]) -> None:
    times = np.unique(np.concatenate([one.times for _, one in named]))
    rows = np.zeros((len(named), times.size))
    for row, (_, one) in zip(rows, named, strict=True):
        row[np.searchsorted(times, one.times)] = np.nan_to_num(_finite(one.values))
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(named))]
    axes.stackplot(_dates(times), rows, labels=[name for name, _ in named], colors=colours, alpha=0.75, linewidth=0)


def _number(axes: Axes, panel: Panel, named: Sequence[tuple[str, Series]]) -> None:
    axes.axis("off")
    shown_series = named[:3]
    for index, (name, one) in enumerate(shown_series):
        line = axes.inset_axes((index / len(shown_series), 0, 0.94 / len(shown_series), 0.3))
        line.axis("off")
        colour = _state_colour(panel, one.newest)
        line.fill_between(_dates(one.times), _finite(one.values), color=colour, alpha=0.25, linewidth=0)
        centre = (index + 0.47) / len(shown_series)
        size = 21 if len(shown_series) == 1 else 12
        axes.text(centre, 0.62, shown(one.newest, panel.unit), ha="center", va="center", color=colour, size=size)
        if name:
            axes.text(centre, 0.36, name, ha="center", va="center", color=MUTED, size=6)


def _state_colour(panel: Panel, value: float) -> str:
    if not panel.limits:
        return INK
    broken = [limit for limit in panel.limits if (value < limit.value if limit.is_lower else value > limit.value)]
    return _colour_of(broken[0].alert) if broken else _GOOD


def _bars(axes: Axes, panel: Panel, named: Sequence[tuple[str, Series]]) -> None:
    ordered = sorted(named, key=lambda one: one[1].newest, reverse=True)[:_MOST_ROWS]
    values = [one.newest for _, one in ordered]
    axes.barh(range(len(ordered)), values, color=COLOURS[1], height=0.6)
    axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_xlim(0, max(*values, 0, 1e-9) * 1.25)
    for index, value in enumerate(values):
        axes.text(value, index, f" {shown(value, panel.unit)}", va="center", color=INK, size=7)


def _table(axes: Axes, panel: Panel, results: Results) -> None:
    axes.axis("off")
    found = {name for series in results for one in series for name in one.labels}
    names = [*(name for name in TITLES if name in found), *sorted(found - set(TITLES))]
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for query, series in zip(panel.queries, results, strict=True):
        for one in series:
            key = tuple(one.labels.get(name, "") for name in names)
            cells.setdefault(key, {})[query.legend] = shown(one.newest, query.unit or Unit.COUNT)
    columns = [*(TITLES.get(name, name) for name in names), *(query.legend for query in panel.queries)]
    rows = [[*key, *(values.get(query.legend, "") for query in panel.queries)] for key, values in sorted(cells.items())]
    rows = rows[:_MOST_ROWS]
    widths = [4 + max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    for line, row in enumerate((columns, *rows)):
        height = 1 - (line + 0.7) / (_MOST_ROWS + 2)
        for index, text in enumerate(row):
            left = sum(widths[:index]) / sum(widths)
            axes.text(left, height, text, color=INK if line else MUTED, size=8, va="center", transform=axes.transAxes)


def _dates(times: Floats) -> Floats:
    return np.asarray(date2num(times.astype("datetime64[s]")), dtype=np.float64)


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, math.nan)
