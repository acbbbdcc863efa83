"""Cells of the matrix as tests, and a run with many faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.distribution import RAY
from tests.faults.cell import Cell
from tests.faults.matrix import CELLS
from tests.faults.proof import run_cell
from tests.faults.soak import plan, soak

pytestmark = pytest.mark.extended

_SHORT: Final = ("rank-1-killed", "checkpoint-bit-flipped", "disk-full")
_LONG: Final = (
    "bucket-torn-uploads",
    "folder-lost-bit-flipped",
    "mlflow-away",
    "node-lost",
    "head-lost",
    "node-partitioned",
    "drain-with-spare",
    "resize-2-4-2",
    "clock-set-back",
)
"""A cell of each kind that no other test shows; `make faults` runs all."""


def _parameter(name: str) -> Any:  # noqa: ANN401 - pytest's class is private
    """A cell as a parameter. Those with Ray run one after the other."""
    (cell,) = [cell for cell in CELLS if cell.name == name]
    is_alone = cell.settings(Path()).scale.launcher == "plain"
    marks = [] if is_alone else [pytest.mark.xdist_group(RAY)]
    return pytest.param(cell, marks=[*marks, *([] if name in _SHORT else [pytest.mark.extended])], id=name)


@pytest.mark.parametrize("cell", map(_parameter, (*_SHORT, *_LONG)))
def test_a_run_with_a_fault_ends_like_one_without(cell: Cell) -> None:
    run_cell(cell)


@pytest.mark.xdist_group(RAY)
def test_a_run_with_many_faults_ends_like_one_without() -> None:
    soak(plan(5, seed=1), say=print)
