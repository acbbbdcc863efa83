"""Where Grafana places the panels of a dashboard: from left to right in rows, in a grid of 24 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from observability.dashboards.model import COLUMNS, Dashboard, Panel, Row, TextPanel


@dataclass(frozen=True)
class Place:
    """A panel or the title of a row with its place, in columns and lines of the grid."""

    content: Panel | TextPanel | Row
    left: int
    top: int
    width: int
    height: int


def places(dashboard: Dashboard) -> Iterator[Place]:
    """The places from top to bottom; the title of a row takes one line."""
    top = 0
    for row in dashboard.rows:
        yield Place(row, 0, top, COLUMNS, 1)
        top += 1
        left = tallest = 0
        for panel in row.panels:
            yield Place(panel, left, top, panel.width, panel.height)
            left, tallest = left + panel.width, max(tallest, panel.height)
            if left >= COLUMNS:
                left, top, tallest = 0, top + tallest, 0
        top += tallest
