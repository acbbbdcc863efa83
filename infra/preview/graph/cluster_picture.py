"""The cluster's half of the picture: a row for each namespace, the stores beside them, and what connects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import inf
from statistics import fmean

from infra.preview.graph import cluster_layout as layout
from infra.preview.graph import connections
from infra.preview.graph.architecture import Architecture, Store
from infra.preview.graph.aws_picture import SIDE_LEFT, SIDE_WIDTH
from infra.preview.graph.cluster_layout import PlacedBox, Row
from infra.preview.graph.contents import Style
from infra.preview.graph.sheet import FAINT, GUARD, LINE, Sheet, fitted, text_width, wrapped
from infra.preview.graph.wiring import Wire, wires_of

_CLUSTER, _FRAME, _NAMESPACE, _TEAM = "#f4f7fa", "#e6f1e6", "#ffffff", "#f6fbf6"
_FILLS = {Style.CHART: "#dbe4f3", Style.WORKLOAD: "#eadff2", Style.QUEUE: "#bfe3c0", Style.OBJECTS: "#edf0f2"}
_LEGEND = {
    Style.CHART: "Helm chart",
    Style.WORKLOAD: "workload of the platform",
    Style.QUEUE: "queue",
    Style.OBJECTS: "other objects",
}
_STORE = "#fdeecb"
_COLORS = ("#2f6db5", "#b3541e", "#2e8b57", "#8e44ad", "#c0392b", "#00838f", "#6d4c41", "#5a6b00")

_LEFT, _RIGHT = 3.0, 103.0
_ROWS_LEFT, _ROWS_WIDTH = 11.0, 88.5
_PITCH = 1.3
"""Distance between the tracks of a channel."""

_HEADING_HEIGHT, _CAPTION_HEIGHT = 6.0, 4.2


class ClusterPicture:
    """The cluster and its stores.

    Args:
        facts: what to draw.
        top: upper edge on the sheet.
    """

    def __init__(self, facts: Architecture, *, top: float) -> None:
        self._facts = facts
        self._top = top
        self._rows, self._frame, rows_height = layout.rows_of(facts.contents, _ROWS_WIDTH)
        self._inside = top - _HEADING_HEIGHT - _CAPTION_HEIGHT
        side = _in_order_of_use(facts, self._rows)
        self._stores = dict(zip(side, _store_tops(side, self._inside, rows_height), strict=True))
        lowest = min((y - _height(store) for store, y in self._stores.items()), default=self._inside)
        self.bottom = min(self._inside - rows_height - 1.5, lowest) - 3.0
        """Lower edge of the drawing."""

    def draw(self, sheet: Sheet) -> None:
        """Draw the cluster, its stores and the connections."""
        self._background(sheet)
        for row in self._rows:
            self._row(sheet, row)
        self._draw_stores(sheet)
        colors = cycle(_COLORS)
        spans = {row.namespace.name: self._span(row) for row in self._rows}
        for wire in wires_of(connections.bundled(self._facts.paths), spans):
            trunk = _ROWS_LEFT - 1.8 - wire.track * _PITCH
            _draw_wire(sheet, wire, trunk=trunk, rows=_ROWS_LEFT, color=next(colors))
        stores = {one.urn: (y - _height(one) + 0.6, y - 0.6) for one, y in self._stores.items()}
        for wire in wires_of(connections.bundled(self._facts.uses), {**spans, **stores}):
            trunk = _RIGHT + 1.2 + wire.track * _PITCH
            rows, others = _ROWS_LEFT + _ROWS_WIDTH, dict.fromkeys(stores, SIDE_LEFT)
            _draw_wire(sheet, wire, trunk=trunk, rows=rows, others=others, color=next(colors))

    def _background(self, sheet: Sheet) -> None:
        sheet.text(_LEFT, self._top - 1, "On the cluster", size=11, bold=True)
        x = _LEFT + 18
        for style, words in _LEGEND.items():
            sheet.box(x, self._top - 3.1, 2, 1.6, fill=_FILLS[style], radius=0.4)
            sheet.text(x + 2.8, self._top - 1.3, words, size=7.5, color=FAINT)
            x += 5 + text_width(words, size=7.5)
        bottom = self.bottom + 3.0
        sheet.box(_LEFT, bottom, _RIGHT - _LEFT, self._top - _HEADING_HEIGHT + 2 - bottom, fill=_CLUSTER)
        top = self._top - _HEADING_HEIGHT + 0.6
        sheet.text(5, top, self._facts.cluster, size=9, bold=True)
        caption = (
            "left: what network policies let a namespace reach (not DNS); right: what its objects and roles refer to"
        )
        sheet.text(_RIGHT - 2, top, caption, size=7.5, color=FAINT, align="right")
        if self._frame is not None:
            y = self._inside - self._frame.top
            sheet.box(_ROWS_LEFT - 1, y - self._frame.height, _ROWS_WIDTH + 2, self._frame.height, fill=_FRAME)
            sheet.text(_ROWS_LEFT + 1, y - layout.MARGIN, self._frame.title, size=8.5, bold=True)
            for index, line in enumerate(self._frame.facts):
                below = y - layout.MARGIN - layout.TITLE_HEIGHT - index * layout.LINE_HEIGHT
                sheet.text(_ROWS_LEFT + 1, below, line, size=layout.FACTS_SIZE, color=FAINT)

    def _row(self, sheet: Sheet, row: Row) -> None:
        namespace, top = row.namespace, self._inside - row.top
        fill = _TEAM if namespace.is_team else _NAMESPACE
        sheet.box(_ROWS_LEFT, top - row.height, _ROWS_WIDTH, row.height, fill=fill)
        name = namespace.name or "cluster-wide"
        size = fitted(name, layout.NAME_WIDTH - 3, size=9.5)
        sheet.text(_ROWS_LEFT + 1.5, top - layout.MARGIN, name, size=size, bold=True)
        callers = self._facts.callers.get(namespace.name)
        lines = filter(None, (namespace.facts, f"reaching others: {callers}" if callers else ""))
        words = [part for line in lines for part in wrapped(line, layout.NAME_WIDTH - 3, size=layout.FACTS_SIZE)]
        for index, line in enumerate(words):
            y = top - layout.MARGIN - 2.6 - index * layout.LINE_HEIGHT
            sheet.text(_ROWS_LEFT + 1.5, y, line, size=layout.FACTS_SIZE, color=FAINT)
        for placed in row.boxes:
            _draw_box(sheet, placed, top)
        for index, line in enumerate(row.counts):
            y = top - row.counts_y - index * layout.LINE_HEIGHT
            sheet.text(_ROWS_LEFT + layout.NAME_WIDTH, y, line, size=layout.FACTS_SIZE, color=FAINT)

    def _span(self, row: Row) -> tuple[float, float]:
        top = self._inside - row.top
        return top - row.height + 1, top - 1

    def _draw_stores(self, sheet: Sheet) -> None:
        sheet.text(SIDE_LEFT, self._top - 1, "State and services", size=11, bold=True)
        caption = "framed: protected from deletion"
        sheet.text(SIDE_LEFT + SIDE_WIDTH, self._top - 1.5, caption, size=7.5, color=GUARD, align="right")
        for store, y in self._stores.items():
            edge, line = (GUARD, 1.8) if store.is_protected else (LINE, 1.0)
            sheet.box(SIDE_LEFT, y - _height(store), SIDE_WIDTH, _height(store), fill=_STORE, edge=edge, line=line)
            sheet.text(SIDE_LEFT + 1.5, y - 1.1, store.service, size=8.5, bold=True)
            sheet.text(SIDE_LEFT + 8, y - 1.1, store.name, size=8.5)
            right = SIDE_LEFT + SIDE_WIDTH - 1.5
            sheet.text(right, y - 1.2, store.facts, size=7.5, color=FAINT, align="right")


def _height(store: Store) -> float:
    return 4.0 + 2.2 * store.facts.count("\n")


def _in_order_of_use(facts: Architecture, rows: Sequence[Row]) -> list[Store]:
    """Stores beside the rows that use them, which keeps the lines short; those that no row uses come last."""
    middles = {row.namespace.name: row.top + row.height / 2 for row in rows}

    def place(store: Store) -> float:
        ends = connections.ends(edge for edge in facts.uses if store.urn in (edge.source, edge.target))
        users = [middles[end] for end in ends if end in middles]
        return fmean(users) if users else inf

    return sorted((*facts.stores, *facts.services), key=place)


def _store_tops(stores: Sequence[Store], top: float, height: float) -> list[float]:
    """Upper edges of the stores, spread over the height of the rows."""
    free = height - sum(map(_height, stores))
    gap = max(free / max(len(stores) - 1, 1), 0.9)
    tops, y = [], top
    for store in stores:
        tops.append(y)
        y -= _height(store) + gap
    return tops


def _draw_box(sheet: Sheet, placed: PlacedBox, top: float) -> None:
    x, y = _ROWS_LEFT + placed.x, top - placed.y
    sheet.box(x, y - placed.height, placed.width, placed.height, fill=_FILLS[placed.box.style])
    sheet.text(x + layout.MARGIN, y - layout.MARGIN, placed.box.title, size=layout.TITLE_SIZE, bold=True)
    for index, line in enumerate(placed.facts):
        below = y - layout.MARGIN - layout.TITLE_HEIGHT - index * layout.LINE_HEIGHT
        sheet.text(x + layout.MARGIN, below, line, size=layout.FACTS_SIZE, color=FAINT)


def _draw_wire(
    sheet: Sheet, wire: Wire, *, trunk: float, rows: float, color: str, others: Mapping[str, float] | None = None
) -> None:
    """A bundle.

    Args:
        sheet: where to draw.
        wire: the bundle with its branches.
        trunk: x of the vertical line.
        rows: x of the edge of the rows.
        color: colour of all its lines.
        others: x of the edges of ends that are no rows.
    """
    edges = others or {}
    branches = (*wire.sources, *wire.targets)
    sheet.path([(trunk, min(branches)), (trunk, max(branches))], color=color)
    for source, y in zip(wire.bundle.sources, wire.sources, strict=True):
        sheet.path([(edges.get(source, rows), y), (trunk, y)], color=color)
        sheet.dot(edges.get(source, rows), y, color=color)
    for target, y in zip(wire.bundle.targets, wire.targets, strict=True):
        sheet.arrow((trunk, y), (edges.get(target, rows), y), color=color)
