"""Faults of the code and the processes of a run."""

from __future__ import annotations

import pytest

from tests.faults.as_tests import parameters
from tests.faults.cell import Cell
from tests.faults.matrix import OF_PROCESSES
from tests.faults.runner import run_cell


@pytest.mark.parametrize("cell", parameters(OF_PROCESSES))
def test_a_run_with_a_fault_ends_like_one_without(cell: Cell) -> None:
    run_cell(cell)
