"""A rank whose step or wait for a batch takes too long ends with its stacks, and the message names the rank, its step and its place."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from observability.runlog import Notice, RunEnded, WorkersFailed, read_all, select
from tests.engines import report_table
from tests.training.launch.driver import arguments_for
from tests.training.runs import small_settings
from tests.waiting import wait_until
from training import deadlines
from training.callbacks.step_deadline import StepDeadline
from training.cli import main
from training.config.schema import TrainingSettings
from training.deadlines import Deadlines
from training.evidence import FOLDER
from training.failures import BATCH_DEADLINE, STEP_DEADLINE, STOPPED_WAITING

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


class Watched(Deadlines):
    """Deadlines whose ends are only written down."""

    def __init__(self, root: Path, **recovery: float | None) -> None:
        (root / FOLDER).mkdir()
        super().__init__(small_settings(recovery=recovery), root, attempt=0, rank=0, dump_collectives=lambda: None)
        self.ends: list[tuple[str, str]] = []

    def _arm(self) -> None:
        """Not here: faulthandler would end this process if its thread is late."""

    def _end(self, running: Any, message: str) -> None:  # noqa: ANN401 - what is under way
        self.ends.append((running.kind, message))

    def ends_with(self, kind: str) -> str:
        """Waits for the end of a kind; returns its message, and forgets the ends so far."""
        wait_until(lambda: kind in dict(self.ends))
        message = dict(self.ends)[kind]
        self.ends.clear()
        return message


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_end"])
def test_between_epochs_and_at_the_end_is_no_deadline(tmp_path: Path, hook: str) -> None:
    watched = Watched(tmp_path, step_deadline=0.2, first_step_deadline=20.0)
    callback = StepDeadline(watched)
    loop: Any = SimpleNamespace(progress=SimpleNamespace(step=7, step_in_epoch=3))
    result: Any = None
    callback.on_run_start(loop)
    callback.on_step_start(loop, [])
    time.sleep(0.5)  # the first step may compile
    callback.on_step_end(loop, [], result)
    getattr(callback, hook)(loop)
    time.sleep(0.5)
    assert watched.ends == []
    callback.on_step_end(loop, [], result)
    assert watched.ends_with(STEP_DEADLINE) == "step 8 has taken more than 0.2 s (recovery.step_deadline)"
    callback.on_close(loop)


def test_the_first_step_and_every_wait_for_a_batch_have_deadlines_of_their_own(tmp_path: Path) -> None:
    watched = Watched(tmp_path, first_step_deadline=0.2, batch_deadline=0.3)
    watched.start()
    for _ in range(3):
        with watched:
            time.sleep(0.15)
    assert watched.ends == []
    with watched:
        assert watched.ends_with(BATCH_DEADLINE) == "waited for a batch more than 0.3 s (recovery.batch_deadline)"
    watched.step_begins(1, is_first=True)
    assert watched.ends_with(STEP_DEADLINE).endswith("(recovery.first_step_deadline)")
    watched.close()


def test_a_run_that_is_asked_to_stop_waits_for_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "STOP_PATIENCE", 0.2)
    watched = Watched(tmp_path, batch_deadline=None, step_deadline=5.0)
    watched.start()
    with watched:
        time.sleep(0.6)
        assert watched.ends == []
        (tmp_path / "stop").touch()
        watched.ends_with(STOPPED_WAITING)
    watched.close()


@pytest.mark.extended
@pytest.mark.parametrize("loader_workers", [0, 1])
def test_a_file_system_that_does_not_answer_is_a_hang(tmp_path: Path, loader_workers: int) -> None:
    chosen = small_settings(
        data={
            "dataset": "tests.training.faults.datasets:hanging",
            "options": {"trace": str(tmp_path / "failed")},
            "loader_workers": loader_workers,
        },
        recovery={"batch_deadline": DEADLINE},
        loop={"max_steps": 3},
    )
    assert main(arguments_for(chosen, tmp_path)) == 0
    (failed,) = select(read_all(tmp_path / "runs" / "run"), WorkersFailed)
    assert (failed.cause, failed.restarts) == ("hang", True)
    assert "BatchDeadlineExceeded" in failed.reason
    assert re.search(r"at .*tests/training/faults/datasets\.py:\d+ in read", failed.reason)
