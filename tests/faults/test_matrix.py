"""Cells of the matrix as tests: one of each kind that no other test shows. `make faults` runs all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.distribution import RAY_NODES
from tests.faults.cell import Cell
from tests.faults.matrix import CELLS
from tests.faults.proof import run_cell
from tests.faults.soak import plan, soak

pytestmark = pytest.mark.extended

_CELLS: Final = (
    "checkpoint-bit-flipped",
    "disk-full",
    "node-lost",
    "clock-set-back",
)


def _parameter(name: str) -> Any:  # noqa: ANN401 - pytest's class is private
    """A cell as a parameter. Those with Ray run one after the other."""
    (cell,) = [cell for cell in CELLS if cell.name == name]
    is_alone = cell.settings(Path()).scale.launcher == "plain"
    return pytest.param(cell, marks=[] if is_alone else [pytest.mark.xdist_group(RAY_NODES)], id=name)


@pytest.mark.parametrize("cell", map(_parameter, _CELLS))
def test_a_run_with_a_fault_ends_like_one_without(cell: Cell) -> None:
    run_cell(cell)


@pytest.mark.xdist_group(RAY_NODES)
def test_a_run_with_many_faults_ends_like_one_without() -> None:
    soak(plan(5, seed=1), say=print)
