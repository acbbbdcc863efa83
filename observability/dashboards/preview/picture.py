"""A picture of a whole dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from observability.dashboards.layout import Place, places
from observability.dashboards.model import COLUMNS, Chart, Dashboard, Panel, Row
from observability.dashboards.preview.panels import GRID, INK, MUTED, Results, draw
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

_SCRAPE_SECONDS = 30.0
"""Interval that kube-prometheus-stack gives Grafana's data source, from which Grafana makes the window of rates: some targets are scraped
no more often. Our PodMonitors are, every 15 s."""

_MARGINS: Mapping[Chart, tuple[float, float]] = {
    Chart.SERIES: (0.045, 0.68),
    Chart.STACK: (0.045, 0.68),
    Chart.BARS: (0.075, 0.15),
    Chart.NUMBER: (0.012, 0.1),
    Chart.TABLE: (0.012, 0.1),
}
"""Space for labels: on the left as a share of the width, and below in inches."""

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


@dataclass(frozen=True, kw_only=True)
class View:
    """What of a Prometheus is shown.

    Attributes:
        end: Unix time of the right edge.
        seconds: how far back it looks.
        values: values of variables, regular expressions; others choose everything.
    """

    source: MetricsSource
    end: float
    seconds: float
    values: Mapping[str, str]

    @property
    def period(self) -> Period:
        """The period, with a sample for about each pixel."""
        step = max(self.seconds / _POINTS, _SCRAPE_SECONDS)
        return Period(start=self.end - self.seconds, end=self.end, step=step)

    def expression(self, text: str, dashboard: Dashboard) -> str:
        """An expression of the dashboard with the values of its variables."""
        defaults = {
            **{variable.name: ".*" for variable in dashboard.variables},
            "__rate_interval": f"{max(self.period.step + _SCRAPE_SECONDS, 4 * _SCRAPE_SECONDS):.0f}s",
            "__range": f"{self.seconds:.0f}s",
        }
        return substituted(text, {**defaults, **self.values})


def results_of(panel: Panel, dashboard: Dashboard, view: View) -> Results:
    """The series of each query of a panel.

    Raises:
        RefusedError: Prometheus does not answer.
        PlatformError: it refuses a query.
    """
    expressions = [view.expression(query.expression, dashboard) for query in panel.queries]
    if panel.chart in {Chart.TABLE, Chart.BARS}:
        return [view.source.at(expression, view.end) for expression in expressions]
    return [view.source.over(expression, view.period) for expression in expressions]


def draw_dashboard(dashboard: Dashboard, view: View, file: Path) -> None:
    """Draw the dashboard and write it as PNG; errors as of `results_of`."""
    placed = list(places(dashboard))
    height = _HEAD + _LINE * max(place.top + place.height for place in placed)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), facecolor=_PAGE)
        figure.text(0.008, 1 - 0.28 / height, dashboard.title, size=15, weight="bold", va="center")
        figure.text(0.008, 1 - 0.58 / height, dashboard.description, size=9, color=MUTED, va="center")
        for place in placed:
            axes = _axes(figure, place, height)
            if axes is not None and isinstance(place.content, Panel):
                draw(axes, place.content, results_of(place.content, dashboard, view))
        figure.savefig(file, dpi=80, facecolor=_PAGE)


def _axes(figure: Figure, place: Place, height: float) -> Axes | None:
    """The card of a panel with its title, and axes in it; None for the title of a row."""
    left, width = place.left / COLUMNS, place.width / COLUMNS
    top = 1 - (_HEAD + place.top * _LINE) / height
    if isinstance(place.content, Row):
        figure.text(0.008, top - 0.55 * _LINE / height, place.content.title, size=11, weight="bold", va="center")
        return None
    tall = place.height * _LINE / height
    card = figure.add_axes((left + 0.003, top - tall + 0.05 / height, width - 0.006, tall - 0.1 / height))
    card.set(xticks=[], yticks=[])
    for spine in card.spines.values():
        spine.set_visible(True)
    figure.text(left + 0.008, top - 0.19 / height, place.content.title, size=8.5, weight="bold", va="center")
    chart = place.content.chart if isinstance(place.content, Panel) else Chart.TABLE
    margin, below = _MARGINS[chart]
    box = (left + margin, top - tall + below / height, width - margin - 0.012, tall - (below + 0.4) / height)
    axes = figure.add_axes(box)
    axes.patch.set_visible(False)
    return axes
