"""What people read of runs: the table of runs, and the summary at the end of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from observability.runlog import Evaluated, Event, RunEnded, RunLogWriter, RunStarted
from tests.observability.sample_run import OBJECTIVE
from tests.training.runs import done_step, small_settings, training_started
from training.environment import RUN_ARGUMENTS_VARIABLE
from training.joblist import job_table
from training.launch.task import Outcome
from training.rundir import RunDirectory
from training.summary import summary
from training.tracking.process import DeliveryReport

STARTED = RunStarted(run="r", settings={}, environment={})
READY = training_started(total_steps=420, objective=OBJECTIVE.record())


def evaluated(split: str, accuracy: float) -> Evaluated:
    return Evaluated(split=split, step=1, epoch=1, loss=1, metrics={"accuracy": accuracy}, samples=10, seconds=0.1)


def make_run(folder: Path, name: str, *events: Event) -> RunDirectory:
    run = RunDirectory(folder / name)
    run.path.mkdir()
    run.write_settings(small_settings())
    with RunLogWriter(run.path) as log:
        for event in events:
            log.write(event)
    return run


def cells(run: RunDirectory) -> list[str]:
    """The cells of a run's line without the time of its last event."""
    return [cell for cell in job_table([run]).splitlines()[1].split("  ") if cell][:-1]


def test_the_metric_is_that_of_the_newest_step_whenever_it_was_measured(tmp_path: Path) -> None:
    late = replace(evaluated("validation", 0.5), step=1, is_asynchronous=True)
    run = make_run(tmp_path, "run", READY, replace(evaluated("validation", 0.75), step=2), late)
    plain = make_run(tmp_path, "plain", READY, evaluated("validation", 0.75))
    assert cells(run)[-1].strip() == cells(plain)[-1].strip() == "accuracy 75.0 %"


def test_a_finished_run_shows_its_steps_and_its_newest_validation(tmp_path: Path) -> None:
    evaluations = evaluated("validation", 0.975), evaluated("test", 0.1)
    before = STARTED, READY, done_step(419), evaluated("validation", 0.5), done_step(420)
    run = make_run(tmp_path, "first", *before, *evaluations, RunEnded(status="done", step=420))
    assert [cell.strip() for cell in cells(run)] == ["first", "done", "420/420", "accuracy 97.5 %"]


def test_a_run_with_a_live_driver_is_running_whatever_its_log_says(tmp_path: Path) -> None:
    run = make_run(tmp_path, "again", STARTED, RunEnded(status="failed", step=0))
    with run.driving():
        assert cells(run)[1].strip() == "running"
    assert cells(run)[1].strip() == "failed"


def test_a_run_without_driver_or_final_event_was_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "cut", STARTED, READY, done_step(7), RunEnded(status="interrupted", step=7), STARTED)
    assert [cell.strip() for cell in cells(run)] == ["cut", "killed", "7/420"]
    assert cells(make_run(tmp_path, "early", STARTED))[2].strip() == "0/?", "it never started to train"


_STOPPED = Outcome(status="stopped", step=20, weights_sha256="0123456789abcdef" * 4)
_AWAY = DeliveryReport(is_complete=False, uri="http://mlflow:5000", problem="connection refused")


def _lines(run: RunDirectory, delivery: DeliveryReport) -> dict[str, str]:
    parts = (line.split(maxsplit=1) for line in summary(_STOPPED, run, code=None, delivery=delivery))
    return dict(parts)


def test_a_run_of_this_machine_names_commands_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_ARGUMENTS_VARIABLE, raising=False)
    run = RunDirectory(tmp_path / "digits")
    lines = _lines(run, _AWAY)
    assert lines["checkpoint"] == f"{run.path}/checkpoints/step-00000020"
    assert lines["weights"] == f"{run.path}/model/model.safetensors  (weights hash 0123456789abcdef)"
    assert lines["events"] == f"{run.path}/events.jsonl  (make monitor NAME={run.path})"
    assert lines["MLflow"] == f"incomplete: connection refused; make sync NAME={run.path} sends the rest"
    assert lines["resume"] == f"make resume NAME={run.path}"
    tracked = DeliveryReport(is_complete=True, uri="sqlite:///m.db", run_id="f9", model="cnn/1")
    assert _lines(run, tracked)["MLflow"] == "run f9, model cnn/1 in sqlite:///m.db  (make ui)"


def test_a_job_names_only_commands_that_its_user_can_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ARGUMENTS_VARIABLE, "ENV=prod JOB=digits TEAM=research")
    lines = _lines(RunDirectory(tmp_path / "digits"), _AWAY)
    resume = "make resume ENV=prod JOB=digits TEAM=research"
    assert lines["events"] == f"{tmp_path}/digits/events.jsonl"
    assert lines["MLflow"] == f"incomplete: connection refused; {resume} sends the rest"
    assert lines["resume"] == resume
