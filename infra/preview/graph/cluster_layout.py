"""Where the boxes of the cluster stand: a row for each namespace, its boxes side by side in as many lines as they need.

Lengths are units of the sheet, and y grows downwards from the top of the first row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.preview.graph.contents import Box, Contents, Namespace
from infra.preview.graph.sheet import text_width, wrapped

TITLE_SIZE, FACTS_SIZE = 8.0, 7.0
TITLE_HEIGHT, LINE_HEIGHT = 2.2, 1.75
MARGIN = 1.2
NAME_WIDTH = 19.0
_GAP = 1.0
_WIDEST_BOX = 44.0


@dataclass(frozen=True, kw_only=True)
class PlacedBox:
    """A box of a namespace, relative to the upper left corner of its row."""

    box: Box
    facts: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """A namespace.

    Attributes:
        namespace: the namespace.
        top: distance from the top of the first row.
        height: height of the row.
        boxes: its boxes.
        counts: lines about the objects that are only counted.
        counts_y: distance of the first of them from the top of the row.
    """

    namespace: Namespace
    top: float
    height: float
    boxes: tuple[PlacedBox, ...]
    counts: tuple[str, ...]
    counts_y: float


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The frame around the rows of the teams: its title, the lines under it, and where it stands."""

    title: str
    facts: tuple[str, ...]
    top: float
    height: float


def rows_of(contents: Contents, width: float) -> tuple[tuple[Row, ...], Frame | None, float]:
    """The rows of a cluster with this width, the frame around the teams, and the height of all."""
    title = ", ".join(title for title, _ in contents.cohorts)
    facts = wrapped("; ".join(facts for _, facts in contents.cohorts), width, size=FACTS_SIZE)
    teams = [one for one in contents.namespaces if one.is_team]
    rows: list[Row] = []
    y = start = 0.0
    frame = None
    for namespace in (*contents.namespaces, contents.cluster_wide):
        if teams and namespace is teams[0]:
            start, y = y, y + MARGIN + TITLE_HEIGHT + len(facts) * LINE_HEIGHT + MARGIN
        row = _row(namespace, y, width)
        rows.append(row)
        y += row.height + _GAP
        if teams and namespace is teams[-1]:
            frame = Frame(title=title, facts=facts, top=start, height=y - start)
            y += MARGIN
    return tuple(rows), frame, y - _GAP


def _row(namespace: Namespace, top: float, width: float) -> Row:
    space = width - NAME_WIDTH - MARGIN
    placed, bottom = _flow(namespace.boxes, space)
    text = ", ".join(f"{kind} x {number}" for kind, number in namespace.counts.items())
    counts = wrapped(f"also: {text}", space, size=FACTS_SIZE) if text else ()
    below = bottom + (0.8 if placed else 0.0)
    height = below + len(counts) * LINE_HEIGHT + MARGIN
    return Row(
        namespace=namespace,
        top=top,
        height=max(height, TITLE_HEIGHT + LINE_HEIGHT + 2 * MARGIN),
        boxes=placed,
        counts=counts,
        counts_y=below,
    )


def _flow(boxes: Iterable[Box], space: float) -> tuple[tuple[PlacedBox, ...], float]:
    """Boxes side by side, and below each other where a line is full; also the lower edge of the last line."""
    lines: list[list[tuple[Box, tuple[str, ...], float]]] = [[]]
    used = 0.0
    for box in boxes:
        facts, width = _size(box, min(_WIDEST_BOX, space))
        if lines[-1] and used + width > space:
            lines.append([])
            used = 0.0
        lines[-1].append((box, facts, width))
        used += width + _GAP
    placed: list[PlacedBox] = []
    y = MARGIN
    for line in filter(None, lines):
        height = 2 * MARGIN + TITLE_HEIGHT + max(len(facts) for _, facts, _ in line) * LINE_HEIGHT
        x = NAME_WIDTH
        for box, facts, width in line:
            placed.append(PlacedBox(box=box, facts=facts, x=x, y=y, width=width, height=height))
            x += width + _GAP
        y += height + _GAP
    return tuple(placed), y - _GAP if placed else y


def _size(box: Box, widest: float) -> tuple[tuple[str, ...], float]:
    """The lines of a box's text, and its width."""
    title = text_width(box.title, size=TITLE_SIZE, bold=True)
    facts = wrapped(box.facts, max(widest - 2 * MARGIN, title), size=FACTS_SIZE)
    return facts, max(title, *(text_width(line, size=FACTS_SIZE) for line in facts)) + 2 * MARGIN
