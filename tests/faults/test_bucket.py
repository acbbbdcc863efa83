"""Faults of the bucket, and a clock that is set."""

from __future__ import annotations

import pytest

from tests.faults import bucket, clock
from tests.faults.as_tests import parameters
from tests.faults.cell import Cell
from tests.faults.runner import run_cell


@pytest.mark.parametrize("cell", parameters([*bucket.CELLS, *clock.CELLS]))
def test_a_run_with_a_fault_ends_like_one_without(cell: Cell) -> None:
    run_cell(cell)
