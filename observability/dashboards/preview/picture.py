"""A picture of a whole dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from observability.dashboards.model import COLUMNS, Chart, Dashboard, Panel, Row
from observability.dashboards.preview.layout import Place, places
from observability.dashboards.preview.panels import COLOURS, GRID, INK, MUTED, Results, draw
from observability.dashboards.preview.source import MetricsSource, Period
from observability.dashboards.templates import substituted

_WIDTH = 17.0
"""Inches."""

_LINE = 0.36
"""Inches of a line of the grid."""

_HEAD = 0.8
"""Inches above the grid."""

_PAGE, _CARD = "#111217", "#181b1f"
_POINTS = 240
"""Samples of a series."""

_SCRAPE_SECONDS = 15.0
"""Interval of our PodMonitors, from which Grafana makes the window of rates."""

_STYLE = {
    "font.size": 7.5,
    "axes.facecolor": _CARD,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
}


def draw_dashboard(
    dashboard: Dashboard, source: MetricsSource, *, end: float, seconds: float, values: Mapping[str, str], file: Path
) -> None:
    """Draw the dashboard with the data up to a time, and write it as PNG.

    Args:
        dashboard: what to draw.
        source: Prometheus.
        end: Unix time of its right edge.
        seconds: how far back it looks.
        values: values of variables, regular expressions; others choose everything.
        file: the picture.
    """
    step = max(seconds / _POINTS, _SCRAPE_SECONDS)
    period = Period(start=end - seconds, end=end, step=step)
    chosen = {
        **{variable.name: ".*" for variable in dashboard.variables},
        "__rate_interval": f"{max(step + _SCRAPE_SECONDS, 4 * _SCRAPE_SECONDS):.0f}s",
        "__range": f"{seconds:.0f}s",
        **values,
    }
    placed = list(places(dashboard))
    height = _HEAD + _LINE * max(place.top + place.height for place in placed)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), facecolor=_PAGE)
        figure.text(0.008, 1 - 0.28 / height, dashboard.title, size=15, weight="bold", va="center")
        figure.text(0.008, 1 - 0.58 / height, dashboard.description, size=9, color=MUTED, va="center")
        for place in placed:
            _draw(figure, place, height, source, period, chosen)
        figure.savefig(file, dpi=80, facecolor=_PAGE)


def _draw(
    figure: Figure, place: Place, height: float, source: MetricsSource, period: Period, values: Mapping[str, str]
) -> None:
    left, width = place.left / COLUMNS, place.width / COLUMNS
    top = 1 - (_HEAD + place.top * _LINE) / height
    if isinstance(place.content, Row):
        figure.text(0.008, top - 0.55 * _LINE / height, place.content.title, size=11, weight="bold", va="center")
        return
    panel = place.content
    tall = place.height * _LINE / height
    card = figure.add_axes((left + 0.003, top - tall + 0.05 / height, width - 0.006, tall - 0.1 / height))
    card.set(xticks=[], yticks=[])
    for spine in card.spines.values():
        spine.set_visible(True)
    figure.text(left + 0.008, top - 0.19 / height, panel.title, size=8.5, weight="bold", va="center")
    if not isinstance(panel, Panel):
        return
    is_bare = panel.chart in {Chart.NUMBER, Chart.TABLE}
    margin = 0.012 if is_bare else 0.045 if panel.chart is not Chart.BARS else 0.075
    below = 0.1 if is_bare else 0.62 if panel.chart is not Chart.BARS else 0.15
    box = (left + margin, top - tall + below / height, width - margin - 0.012, tall - (below + 0.4) / height)
    axes = figure.add_axes(box)
    axes.set_prop_cycle(color=COLOURS)
    axes.patch.set_visible(False)
    draw(axes, panel, _results(panel, source, period, values))


def _results(panel: Panel, source: MetricsSource, period: Period, values: Mapping[str, str]) -> Results:
    expressions = [substituted(query.expression, values) for query in panel.queries]
    if panel.chart in {Chart.TABLE, Chart.BARS}:
        return [source.at(expression, period.end) for expression in expressions]
    return [source.over(expression, period) for expression in expressions]
