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
    """The places from top to bottom; the title of a row takes one line, and a panel that does not fit into a line begins the next one.

    The SDK (0.0.21) would begin a line only where the one before is exactly full, and place two panels of 16 columns beside each other.
    """
    top = 0
    for row in dashboard.rows:
        yield Place(row, 0, top, COLUMNS, 1)
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            yield Place(panel, left, top, panel.width, panel.height)
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
