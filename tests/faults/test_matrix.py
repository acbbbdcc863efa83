"""The document of the matrix, the plan of the soak, and how lost steps are counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.distribution import RAY
from tests.faults.__main__ import main
from tests.faults.document import FILE, row, row_begin, rows
from tests.faults.matrix import CELLS
from tests.faults.picture import PICTURE, Measured, digest
from tests.faults.proof import Cost, lost_steps
from tests.faults.soak import plan, settings, soak
from training.callbacks import sample_ledger


@pytest.mark.long
@pytest.mark.xdist_group(RAY)
def test_a_run_with_many_faults_ends_like_one_without() -> None:
    soak(plan(5, seed=1), say=print)


def test_the_document_has_every_cell_as_it_is_now() -> None:
    found = rows(FILE.read_text(encoding="utf-8"))
    assert list(found) == [cell.name for cell in CELLS]
    assert [cell.name for cell in CELLS if not found[cell.name].startswith(row_begin(cell))] == []


def test_the_picture_shows_the_numbers_of_the_document() -> None:
    assert digest(rows(FILE.read_text(encoding="utf-8"))) in PICTURE.read_text(encoding="utf-8")


def test_a_row_is_read_as_it_is_written() -> None:
    cost = Cost(causes=(), detection=0.25, next_step=12.4, lost_steps=3, goodput=0.5, wall=70.0)
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


def test_an_impossible_soak_is_refused_before_the_first_cell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--soak=-1"])
    assert "argument --soak: must be at least 0, not -1" in capsys.readouterr().err
