"""Runs that are killed and go on with another number of workers: every sample is consumed once per epoch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from observability.runlog import Restored, TrainingStarted, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings

EVERY_DIGIT = list(range(1293))
PARTS = 4
"""Micro-batches of a step of 56 samples; the last step of an epoch has 5, so that one has two and the others have one."""

DIES_IN = (8, 20)
"""Step of the first two attempts in which the last rank is killed; checkpoints are due every 5 steps."""


def settings(root: Path, *, workers: int, attempt: int) -> TrainingSettings:
    """Two epochs in the folder `root/run`; the first two attempts are killed between two checkpoints."""
    accumulation = PARTS // workers
    fault = {
        "step": DIES_IN[min(attempt, 1)] * accumulation,
        "rank": workers - 1,
        "trace": str(root / f"killed-{min(attempt, 1)}"),
        "run": str(root / "run"),
    }
    return small_settings(
        model={"name": "tests.training.faults.models:killed", "options": fault},
        loop={"global_batch": 56, "accumulation": accumulation, "log_sample_ids": True},
        scale={"launcher": "torchrun" if workers > 1 else "plain", "workers": workers},
    )


def test_every_sample_is_consumed_once_per_epoch_by_committed_steps(tmp_path: Path) -> None:
    first, second, third = 2, 4, 1
    run = tmp_path / "run"
    for attempt, workers in enumerate((first, second)):
        with pytest.raises(RuntimeError, match=f"rank {workers - 1} ended without a result, with status -9"):
            run_world(settings(tmp_path, workers=workers, attempt=attempt), run)
    assert run_world(settings(tmp_path, workers=third, attempt=2), run).status == "done"

    started = [(event.world, event.start_step) for event in select(read_all(run), TrainingStarted)]
    resumed = [event.step for event in select(read_all(run), Restored)]
    assert started == [(first, 0), (second, resumed[0]), (third, resumed[1])]
    assert resumed[0] < _last_step_of_first_attempt(run), "no step was lost, so none was repeated"
    assert ledger.consumed_ids(run) == {1: EVERY_DIGIT, 2: EVERY_DIGIT}


def _last_step_of_first_attempt(run: Path) -> int:
    """As rank 0 has recorded it."""
    lines = (run / ledger.FOLDER / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    steps: list[int] = []
    for entry in map(json.loads, lines):
        if "start" in entry and steps:
            break
        if "step" in entry:
            steps.append(entry["step"])
    return steps[-1]
