"""The post-mortem of a run, from what its folder holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from observability.event_log import Event
from observability.postmortem import page
from observability.postmortem.causes import first_cause
from observability.runlog import CheckpointCommitted, RunEnded, RunLogWriter, WorkersFailed
from tests.observability.report.parsed_page import Page
from tests.observability.sample_run import SampleRun
from training.cli import main
from training.postmortem import case_of
from training.rundir import RunDirectory

KILLED = "rank 1 was killed by SIGKILL, in step 13"


def run_with(folder: Path, *endings: Event) -> RunDirectory:
    """A run with the events of a sample, and other ends than the sample's."""
    run = RunDirectory(folder / "run")
    (run.path / "failures").mkdir(parents=True)
    run.logs.mkdir()
    run.settings_file.write_text("model: { name: mlp }\n")
    sample = SampleRun(steps=30).start().train(1, 30)
    events = [event for event in sample.events if not isinstance(event, RunEnded)]
    last = events[-1].time
    with RunLogWriter(run.path) as log:
        for event in events:
            log.write(event)
        for number, event in enumerate(endings):
            log.write(replace(event, time=last + number + 1))
    return run


FAILED = RunEnded(status="failed", step=10, message=f"Traceback …\n{KILLED}")


KILL = WorkersFailed(attempt=0, reason=KILLED, restarts=True)
ERROR = WorkersFailed(attempt=1, reason="rank 0 failed: ValueError: label 12", restarts=False)
FULL = RunEnded(status="failed", step=0, message="[Errno 28] No space left on device")


def test_each_end_of_a_run_has_its_cause(tmp_path: Path) -> None:
    cases: list[tuple[list[Event], str, str, str]] = [
        ([replace(KILL, restarts=False), FAILED], "failed", "killed", KILLED),
        ([KILL, ERROR, FAILED], "failed", "exception", "label 12"),
        ([FULL], "failed", "disk full", "space"),
        ([RunEnded(status="interrupted", step=5)], "stopped", "stopped", "run run was stopped"),
        ([RunEnded(status="done", step=5)], "done", "done", "run run is done"),
        ([], "killed", "driver killed", "ended without a message"),
    ]
    for number, (endings, state, kind, text) in enumerate(cases):
        run = run_with(tmp_path / str(number), *endings)
        case = case_of(run)
        cause = first_cause(case)
        assert (case.state, cause.kind) == (state, kind)
        assert text in cause.sentence
        with run.driving():
            assert case_of(run).state == "runs"


def test_the_command_prints_the_cause_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(tmp_path, WorkersFailed(attempt=0, reason=KILLED, restarts=False), FAILED)
    dead = {"what": "actor RayTrainWorker (process 7 on 10.0.0.1)", "state": "DEAD", "why": "worker process died"}
    (run.path / "failures" / "attempt-0-ray.json").write_text(json.dumps([dead]))
    (run.path / "failures" / "attempt-0-rank-0.json").write_text("{ damaged")
    (run.path / "failures" / "attempt-0-rank-1.stack").write_text('File "train.py", line 9 in fail\n')
    (run.logs / "rank-1.jsonl").write_text('{"time": "now", "level": "info", "message": "epoch 1"}\nnot JSON\n')
    assert main(["postmortem", str(run.path)]) == 0
    printed = capsys.readouterr().out
    assert f"cause: {KILLED}" in printed
    assert "Ray, attempt 0: actor RayTrainWorker (process 7 on 10.0.0.1) DEAD: worker process died" in printed
    shown = Page((run.path / "postmortem.html").read_text())
    for text in (KILLED, "worker process died", "line 9 in fail", "now  info  epoch 1", "not JSON", "goodput"):
        assert text in shown.text


def test_the_timeline_has_the_checkpoints_of_a_run(tmp_path: Path) -> None:
    saved = CheckpointCommitted(step=30, path="step-30", bytes=8, stall_seconds=0.1, write_seconds=0.1)
    run = run_with(tmp_path, saved, RunEnded(status="done", step=30))
    case = case_of(run)
    assert case.history is not None
    assert [one.step for one in case.history.checkpoints] == [30]
    assert "Timeline" in Page(page.render(case)).text  # matplotlib's warnings are errors: see pyproject.toml


def test_a_run_without_events_has_a_page(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.settings_file.write_text("model: { name: mlp }\n")
    assert "ended without a message" in Page(page.render(case_of(run))).text


def test_what_cannot_be_written_or_found_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(tmp_path, RunEnded(status="done", step=5))
    (tmp_path / "file").touch()
    assert main(["postmortem", str(run.path), "--out", str(tmp_path / "file" / "page.html")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert main(["postmortem", str(run.path), "--team", "research"]) == 2
    assert "--team needs a cluster" in capsys.readouterr().err
