"""Sending what is left, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.runlog import RunStarted
from tests.engines.ports import free_port
from tests.training.tracking.recorded import RecordedRun, settings
from training.config.schema import TrainingSettings
from training.errors import ExitStatus
from training.rundir import RunDirectory
from training.tracking.state import TrackingState, delivering
from training.tracking.sync import sync


def recorded(configuration: TrainingSettings) -> RecordedRun:
    """A run that ended without having been delivered."""
    run = RecordedRun(configuration)
    run.start()
    run.end("failed")
    return run


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database that does not exist yet."""
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_what_was_sent_is_not_sent_again(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(settings(tmp_path, uri))
    assert sync([run.directory]) == ExitStatus.DONE
    assert sync([run.directory]) == ExitStatus.DONE
    assert capsys.readouterr().out.splitlines() == ["run: delivered", "MLflow has everything of 1 run(s)"]


def test_a_run_that_is_not_tracked_is_left_alone(tmp_path: Path) -> None:
    configuration = settings(tmp_path, "http://127.0.0.1:1")
    off = configuration.tracking.model_copy(update={"enabled": False})
    run = recorded(configuration.model_copy(update={"tracking": off}))
    assert sync([run.directory]) == ExitStatus.DONE
    assert TrackingState.load(run.directory) is None


def test_a_run_that_another_process_delivers_is_left_to_it(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(settings(tmp_path, uri))
    with delivering(run.directory, wait=False):
        assert sync([run.directory]) == ExitStatus.DONE
    assert capsys.readouterr().out == "run: another process is delivering it\n"
    assert TrackingState.load(run.directory) is None


def test_a_run_that_goes_on_is_not_ended(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.train(1, 10)
    with RunDirectory(run.directory).driving():
        assert sync([run.directory]) == ExitStatus.DONE
    state = TrackingState.load(run.directory)
    assert state is not None
    assert state.status == "RUNNING"


def test_a_server_that_is_away_is_asked_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    runs = [recorded(settings(tmp_path, uri, name=f"run{number}")) for number in range(3)]
    assert sync([run.directory for run in runs]) == ExitStatus.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["run0", "run1", "run2"]
    assert all(f"MLflow at {uri}: " in line for line in lines)
    assert [TrackingState.load(run.directory) is not None for run in runs] == [True, False, False]


def test_a_run_of_another_version_of_the_platform_does_not_hold_up_the_others(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = RecordedRun(settings(tmp_path, uri, name="old"))
    old.write(RunStarted(run="old", settings={"loop": {"gone": 1}}, environment={}))
    new = recorded(settings(tmp_path, uri, name="new"))
    assert sync([old.directory, new.directory]) == ExitStatus.FAILED
    first, second = capsys.readouterr().out.splitlines()
    assert "another version of the platform (loop.gone)" in first
    assert second == "new: delivered"


def test_a_file_that_is_no_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mlflow.db").write_text("something else entirely, and long enough not to be an empty header" * 10)
    run = recorded(settings(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}"))
    assert sync([run.directory]) == ExitStatus.FAILED
    assert "file is not a database" in capsys.readouterr().out
