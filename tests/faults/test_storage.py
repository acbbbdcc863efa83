"""Faults of the run's folder, and of MLflow."""

from __future__ import annotations

import pytest

from tests.faults import mlflow_away
from tests.faults.as_tests import parameters
from tests.faults.cell import Cell
from tests.faults.matrix import OF_STORAGE
from tests.faults.runner import run_cell


@pytest.mark.parametrize("cell", parameters([*OF_STORAGE, *mlflow_away.CELLS]))
def test_a_run_with_a_fault_ends_like_one_without(cell: Cell) -> None:
    run_cell(cell)
