"""The tables of docs/FAULTS.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.cell import Cell
from tests.faults.matrix import CELLS
from tests.faults.picture import NONE, PICTURE, draw
from tests.faults.proof import Cost

FILE = Path(__file__).resolve().parents[2] / "docs" / "FAULTS.md"

_HEAD = (
    "| cell | fault | moment | cause | detected | next step | lost steps | wall time |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def row(cell: Cell, cost: Cost | str) -> str:
    """The row of a cell: what it cost, or why that is not known."""
    if isinstance(cost, str):
        return f"{row_begin(cell)} {cost} | | | |"
    measured = (_seconds(cost.detection), _seconds(cost.next_step), str(cost.lost_steps), _seconds(cost.wall))
    return f"{row_begin(cell)} {' | '.join(measured)} |"


def row_begin(cell: Cell) -> str:
    """The part of its row that does not depend on a measurement."""
    cause = cell.fault.cause.replace("_", " ") or NONE
    return f"| `{cell.name}` | {cell.fault.what} | {cell.fault.when} | {cause} |"


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def rows(text: str) -> dict[str, str]:
    """The rows of the document, by the name of their cell."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `([a-z0-9-]+)` \|.*$", text, re.MULTILINE)}


def write_cells(new: Mapping[str, str]) -> None:
    """Replace the rows of the cells that were run, and the picture; other rows keep their numbers, and those without any say so."""
    known = {**rows(FILE.read_text(encoding="utf-8")), **new}
    listed = [known.get(cell.name) or row(cell, "no numbers yet") for cell in CELLS]
    _write("cells", f"{_HEAD}{_lines(listed)}")
    draw(rows(FILE.read_text(encoding="utf-8")), PICTURE)


def write_soak(lines: Sequence[str]) -> None:
    """Replace the result of the soak."""
    _write("soak", _lines(lines))


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write(part: str, content: str) -> None:
    begin, end = f"<!-- {part}: written by make faults -->\n", f"<!-- end of {part} -->"
    text = FILE.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    assert found, f"{FILE} has no part {part}"
    FILE.write_text(f"{before}{begin}{content}{end}{rest.partition(end)[2]}", encoding="utf-8")
