"""The tables of docs/FAULTS.md, and the picture: when each fault was noticed, and when the run went on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from tests.faults.cell import Cell
from tests.faults.matrix import CELLS
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


PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "faults.svg"

NONE = "–"  # noqa: RUF001 - as typography has it
"""In a cell of the table: not there."""

_LEAST_S = 0.01
"""Left end of the logarithmic axis, where shorter times are drawn."""

_NOTICED, _WENT_ON, _LOST = "#dc7633", "#3366cc", "#888888"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the row of a cell says: seconds, None for what did not happen, and steps."""

    detected: float | None
    next_step: float
    lost_steps: int

    @classmethod
    def of(cls, row: str) -> Self | None:
        """From a row of the document; None if it has no numbers."""
        *_, detected, next_step, lost, _wall, _end = (cell.strip() for cell in row.split("|"))
        if not lost:
            return None
        return cls(
            detected=None if detected == NONE else _number(detected), next_step=_number(next_step), lost_steps=int(lost)
        )


def draw(rows: Mapping[str, str], file: Path) -> None:
    """Write the picture of the cells that have numbers, from the document's rows by the name of their cell."""
    cells = {name: found for name, row in rows.items() if (found := Measured.of(row)) is not None}
    # The same numbers make the same file, with texts that can be searched.
    with mpl.rc_context({"svg.hashsalt": "faults", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9.0, 0.24 * len(cells) + 1.2), layout="constrained")
        axes = figure.subplots()
        for place, cell in enumerate(cells.values()):
            next_step = max(_LEAST_S, cell.next_step)
            detected = max(_LEAST_S, cell.detected or _LEAST_S)
            axes.plot([_LEAST_S, max(next_step, detected)], [place, place], color="#dddddd", zorder=1)
            axes.scatter(next_step, place, color=_WENT_ON, marker="s", s=26, zorder=2)
            if cell.detected is not None:
                axes.scatter(detected, place, color=_NOTICED, marker="o", s=18, zorder=3)
            lost = str(cell.lost_steps or "")
            axes.annotate(lost, (1.09, place), xycoords=("axes fraction", "data"), va="center", ha="right", color=_LOST)
        axes.set(xscale="log", xlim=(_LEAST_S * 0.9, 100.0), xlabel="after the fault", ylim=(len(cells) - 0.5, -0.5))
        axes.set_yticks(range(len(cells)), list(cells))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        axes.annotate("steps lost", (1.09, 1.01), xycoords="axes fraction", va="bottom", ha="right", color=_LOST)
        axes.grid(visible=True, axis="x", linewidth=0.5, alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        marks = [
            Line2D([], [], linestyle="", color=_NOTICED, marker="o", markersize=4, label="noticed"),
            Line2D([], [], linestyle="", color=_WENT_ON, marker="s", markersize=5, label="next step"),
        ]
        axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(0.9, 1.0), ncols=2, frameon=False)
        figure.savefig(file, metadata={"Date": None, "Description": digest(rows)})


def digest(rows: Mapping[str, str]) -> str:
    """The sha256 of the rows, which the picture has as its description."""
    return hashlib.sha256("\n".join(rows.values()).encode()).hexdigest()


def _number(text: str) -> float:
    return float(text.removesuffix(" s"))
