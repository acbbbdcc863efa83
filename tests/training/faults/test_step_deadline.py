"""A rank whose step takes too long ends with its stacks, and the message names the rank, its step and its place."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from observability.runlog import Notice, RunEnded, WorkersFailed, read_all, select
from tests.engines import report_table
from tests.training.launch.driver import arguments_for
from tests.training.runs import small_settings
from training.callbacks.step_deadline import StepDeadline
from training.cli import main
from training.config.schema import TrainingSettings
from training.evidence import FOLDER

DEADLINE = 2.0


def settings(fault: str, root: Path, *, step: int, **scale: Any) -> TrainingSettings:  # noqa: ANN401 - settings
    """The last rank hangs once in a step, later than in the first one."""
    rank = scale.get("workers", 1) - 1
    options = {"step": step, "rank": rank, "trace": str(root / "failed")}
    return small_settings(
        model={"name": f"tests.training.faults.models:{fault}", "options": options},
        loop={"max_steps": 12},
        recovery={"step_deadline": DEADLINE},
        scale=scale,
    )


@pytest.mark.extended
def test_a_rank_that_hangs_alone_is_restarted_and_the_run_ends_well(tmp_path: Path) -> None:
    """Even if native code holds the interpreter's lock, so that none of its Python threads runs."""
    assert main(arguments_for(settings("hogging", tmp_path, step=8), tmp_path)) == 0
    run = tmp_path / "runs" / "run"
    events = read_all(run)
    (failed,) = select(events, WorkersFailed)
    assert (failed.cause, failed.restarts) == ("hang", True)
    assert "step 8" in failed.reason
    assert "(recovery.step_deadline)" in failed.reason
    assert re.search(r"at .*tests/training/faults/models\.py:\d+ in fail", failed.reason)
    assert any("(restart 1 of 2 for hangs)" in notice.message for notice in select(events, Notice))
    assert "in fail" in (run / FOLDER / "attempt-0-rank-0.stack").read_text()
    assert select(events, RunEnded)[-1].status == "done"


@pytest.mark.extended
def test_the_rank_that_others_wait_for_is_named_with_the_collective(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = settings("stuck", tmp_path, step=8, launcher="torchrun", workers=2, max_restarts=0)
    assert main(arguments_for(chosen, tmp_path)) == 1
    report_table.ran("torchrun")
    first, waits, remedy = capfd.readouterr().err.rstrip().split("\n")
    assert first.startswith("error: rank 1: step 8 has taken more than 2 s (recovery.step_deadline), at ")
    assert first.endswith(" in fail")
    assert re.fullmatch(r"rank 0 has entered all_reduce \d+ \(.+ float\), which rank 1 has not", waits)
    assert "raise recovery.step_deadline" in remedy
    (failed,) = select(read_all(tmp_path / "runs" / "run"), WorkersFailed)
    assert failed.reason.startswith("rank 1 failed: StepDeadlineExceeded: step 8 has taken more than 2 s")


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_end"])
def test_between_epochs_and_at_the_end_is_no_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    (tmp_path / FOLDER).mkdir()
    ended = threading.Event()
    monkeypatch.setattr(StepDeadline, "_end", lambda *_: ended.set())
    watched = StepDeadline(tmp_path, attempt=0, rank=0, seconds=0.2, dump_collectives=lambda: None)
    loop: Any = SimpleNamespace(progress=SimpleNamespace(step=7))
    result: Any = None
    watched.on_run_start(loop)
    assert not ended.wait(0.5), "the first step may compile"
    watched.on_step_end(loop, [], result)
    getattr(watched, hook)(loop)
    assert not ended.wait(0.5)
    watched.on_step_end(loop, [], result)
    assert ended.wait(60)
    watched.on_close(loop)
