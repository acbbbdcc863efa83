"""What a driver says at the end of its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.environment import RUN_ARGUMENTS_VARIABLE
from training.launch.task import Outcome
from training.rundir import RunDirectory
from training.summary import summary
from training.tracking.process import DeliveryReport

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
