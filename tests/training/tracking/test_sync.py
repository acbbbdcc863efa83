"""`python -m training sync`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from observability.runlog import RunStarted
from tests.engines.ports import free_port
from tests.training.tracking.recorded import RecordedRun, settings, started_run
from training.config.schema import TrainingSettings
from training.errors import ExitStatus
from training.rundir import RunDirectory
from training.tracking.state import TrackingState, delivery_lock
from training.tracking.sync import sync


def undelivered_run(configuration: TrainingSettings) -> RecordedRun:
    """A failed run that was not delivered."""
    run = RecordedRun(configuration)
    run.start()
    run.end("failed")
    return run


def test_a_delivered_run_is_not_delivered_again(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = undelivered_run(settings(tmp_path, uri))
    assert sync([run.directory]) == ExitStatus.DONE
    assert sync([run.directory]) == ExitStatus.DONE
    assert capsys.readouterr().out.splitlines() == ["run: delivered", "MLflow is up to date with 1 run(s)"]


def test_an_untracked_run_and_one_being_delivered_are_skipped(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = undelivered_run(settings(tmp_path, uri))
    tracking = run.settings.tracking.model_copy(update={"enabled": False})
    place = run.settings.run.model_copy(update={"name": "untracked"})
    off = undelivered_run(run.settings.model_copy(update={"tracking": tracking, "run": place}))
    with delivery_lock(run.directory, wait=False):
        assert sync([run.directory, off.directory]) == ExitStatus.DONE
    assert "run: another process is delivering it\n" in capsys.readouterr().out
    assert (TrackingState.load(run.directory), TrackingState.load(off.directory)) == (None, None)


def test_a_run_that_trains_stays_running_and_its_copy_is_not_delivered(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started_run(settings(tmp_path, uri))
    with RunDirectory(run.directory).driving():
        assert sync([run.directory]) == ExitStatus.DONE
    state = TrackingState.load(run.directory)
    assert state is not None
    assert state.status == "RUNNING"
    run.train(1, 10)
    copy = tmp_path / "backup"
    shutil.copytree(run.directory, copy)
    before = (copy / "tracking.json").read_bytes()
    capsys.readouterr()
    assert sync([copy]) == ExitStatus.DONE
    assert capsys.readouterr().out == "MLflow is up to date with 1 run(s)\n"
    assert (copy / "tracking.json").read_bytes() == before


def test_an_unavailable_server_is_tried_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    runs = [undelivered_run(settings(tmp_path, uri, name=f"run{number}")) for number in range(3)]
    assert sync([run.directory for run in runs]) == ExitStatus.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["run0", "run1", "run2"]
    assert all(f"MLflow at {uri}: " in line for line in lines)
    assert [TrackingState.load(run.directory) is not None for run in runs] == [True, False, False]


def test_a_run_of_another_version_does_not_block_others(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = RecordedRun(settings(tmp_path, uri, name="old"))
    old.write(RunStarted(run="old", settings={"loop": {"gone": 1}}, environment={}))
    new = undelivered_run(settings(tmp_path, uri, name="new"))
    assert sync([old.directory, new.directory]) == ExitStatus.FAILED
    first, second = capsys.readouterr().out.splitlines()
    assert "another version of the platform (loop.gone)" in first
    assert second == "new: delivered"


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mlflow.db").write_text("something else entirely, and long enough not to be an empty header" * 10)
    run = undelivered_run(settings(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert sync([run.directory]) == ExitStatus.FAILED
    assert "file is not a database" in capsys.readouterr().out
