"""Cells as tests. The document has all of them; those of one group are in one file, because a file is the unit of `make test LONG=1/4`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.distribution import RAY
from tests.faults.cell import Cell

_SHORT: Final = {"rank-1-killed", "checkpoint-bit-flipped"}
"""A process and a file; the others take as long each."""


def parameters(cells: Sequence[Cell]) -> list[Any]:
    """The cells as parameters, most of them of long tests. Those with Ray run one after the other."""
    return [pytest.param(cell, marks=_marks(cell), id=cell.name) for cell in cells]


def _marks(cell: Cell) -> list[pytest.MarkDecorator]:
    is_alone = cell.settings(Path()).scale.launcher == "plain"
    return [
        *([] if is_alone else [pytest.mark.xdist_group(RAY)]),
        *([] if cell.name in _SHORT else [pytest.mark.long]),
    ]
