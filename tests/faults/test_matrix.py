"""Cells of the matrix as tests, the plan of the soak, and how lost steps are counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.distribution import RAY
from tests.faults.cell import Cell
from tests.faults.document import Measured, row
from tests.faults.matrix import CELLS
from tests.faults.proof import Cost, lost_steps, run_cell
from tests.faults.soak import plan, settings, soak
from training.callbacks import sample_ledger

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


@pytest.mark.extended
@pytest.mark.xdist_group(RAY)
def test_a_run_with_many_faults_ends_like_one_without() -> None:
    soak(plan(5, seed=1), say=print)


def test_a_row_is_read_as_it_is_written() -> None:
    cost = Cost(detection=0.25, next_step=12.4, lost_steps=3, wall=70.0)
    assert Measured.of(row(CELLS[0], cost)) == Measured(detected=0.25, next_step=12.0, lost_steps=3)
    unnoticed = replace(cost, detection=None)
    assert Measured.of(row(CELLS[0], unnoticed)) == Measured(detected=None, next_step=12.0, lost_steps=3)
    assert Measured.of(row(CELLS[0], "not here: needs root")) is None


def test_the_faults_of_a_seed_are_always_the_same_and_the_run_is_longer() -> None:
    planned = plan(60, seed=3)
    assert planned == plan(60, seed=3)
    assert planned != plan(60, seed=4)
    assert settings(planned).loop.epochs * 1293 // 64 > planned[-1].step


def test_lost_steps_are_those_done_and_taken_again_on_the_rank_that_lost_most(tmp_path: Path) -> None:
    folder = tmp_path / sample_ledger.FOLDER
    folder.mkdir()
    for rank, interrupted in enumerate([5, 4]):
        begun = [{"step": step} for step in range(1, interrupted + 1)]
        again = [{"start": 2}, {"step": 3}, {"step": 4}, {"start": 3}, {"step": 4}]
        lines = [json.dumps(entry) for entry in [{"start": 0}, *begun, *again]]
        (folder / f"rank-{rank}.jsonl").write_text("\n".join([*lines, '{"st']), encoding="utf-8")
    assert lost_steps(tmp_path) == 2
