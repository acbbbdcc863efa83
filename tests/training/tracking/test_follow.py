"""The follower as a process during a run, and its delivery to a real MLflow server, with PostgreSQL and an S3 API if available."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient

from observability.runlog import Notice, read_all, select
from tests.engines.mlflow_server import MlflowServer
from tests.engines.ports import free_port
from tests.engines.s3 import S3Api
from tests.training.tracking.recorded import RecordedRun, history, settings, started_run
from tests.waiting import wait_until
from training.errors import ExitStatus
from training.tracking import follow
from training.tracking.delivery import Delivery, last_start
from training.tracking.process import FollowerProcess
from training.tracking.state import TrackingState
from training.tracking.sync import sync

PATIENCE = 120.0

DRIVER = """
import sys, time
from pathlib import Path
from training.tracking.process import FollowerProcess
FollowerProcess(Path(sys.argv[1]))
print("started", flush=True)
time.sleep(600)
"""


eventually = partial(wait_until, seconds=PATIENCE)


def state_of(run: RecordedRun) -> TrackingState:
    """The delivery state of a run, or an empty one."""
    return TrackingState.load(run.directory) or TrackingState(uri="")


@pytest.mark.extended
def test_a_run_is_delivered_while_it_trains_and_completely_at_its_end(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri))
    follower = FollowerProcess(run.directory)
    run.train(1, 30)
    eventually(lambda: state_of(run).newest_step.get("train") == 30)
    assert MlflowClient(tracking_uri=uri).get_run(state_of(run).run_id).info.status == "RUNNING"
    assert os.getpriority(os.PRIO_PROCESS, follower.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert "libtorch" not in Path(f"/proc/{follower.pid}/maps").read_text(encoding="utf-8")
    run.train(31, 100)
    run.end()
    report = follower.finish(timeout=PATIENCE)
    assert (report.is_complete, report.model, report.problem) == (True, "mlp-digits/1", "")
    assert history(uri, report.run_id) == run.expected()
    metrics = MlflowClient(tracking_uri=uri).get_run(report.run_id).data.metrics
    assert "system/cpu_utilization_percentage" in metrics


def test_a_run_whose_driver_was_killed_gets_the_status_killed(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri), trained=10)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", DRIVER, str(run.directory)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"started\n"
        eventually(lambda: state_of(run).newest_step.get("train") == 10)
        run.train(11, 20)
        driver.send_signal(signal.SIGKILL)
    eventually(lambda: state_of(run).status == "KILLED")
    assert history(uri, state_of(run).run_id) == run.expected()


def test_an_unavailable_server_is_reported_once_and_without_credentials(tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, f"http://user:secret@127.0.0.1:{free_port()}"))
    follower = FollowerProcess(run.directory)
    eventually(lambda: bool(select(read_all(run.directory), Notice)))
    run.train(1, 100)
    run.end()
    report = follower.finish(timeout=PATIENCE)
    assert not report.is_complete
    assert "failed" in report.problem
    (notice,) = select(read_all(run.directory), Notice)
    assert notice.level == "warning"
    assert "is unavailable" in notice.message
    assert "secret" not in notice.message + report.uri


class Clock:
    """A fake clock that only `sleep` advances."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def test_delivery_is_retried_for_a_while_at_the_end_unless_the_store_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    run = started_run(settings(tmp_path, uri))
    started = last_start(run.directory)
    assert started is not None
    for failed_before in (False, True):
        clock = Clock()
        monkeypatch.setattr(follow, "time", clock)
        follower = follow.Follower(run.directory, Delivery(run.directory, started), uri=uri)
        if failed_before:
            has_ended = iter([False, True])
            follower.follow(lambda _: next(has_ended))  # noqa: B023 - called at once
        assert not follower.finish()
        assert clock.monotonic() == 0 if failed_before else 0 < clock.monotonic() <= follow.GIVE_UP_SECONDS


def test_sync_delivers_the_run_of_a_killed_follower(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started_run(settings(tmp_path, uri))
    follower = FollowerProcess(run.directory)
    os.kill(follower.pid, signal.SIGKILL)
    run.train(1, 100)
    run.end()
    report = follower.finish(timeout=PATIENCE)
    assert not report.is_complete
    assert "exited with status -9" in report.problem
    assert sync([run.directory]) == ExitStatus.DONE
    assert capsys.readouterr().out == "run: delivered\n"
    assert history(uri, state_of(run).run_id) == run.expected()


@pytest.mark.extended
def test_a_failed_follower_reports_the_error(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri))
    run.end()
    file = run.directory / "model" / "model.json"
    file.write_text(file.read_text().replace('"mlp"', '"mlpp"'))
    report = FollowerProcess(run.directory).finish(timeout=PATIENCE)
    assert not report.is_complete
    assert "model.name=mlpp: unknown model" in report.problem
    assert "Traceback" in (run.directory / "logs" / "tracking.jsonl").read_text()


@pytest.mark.extended
def test_a_run_waits_a_limited_time_for_its_follower_which_delivers_earlier_runs(uri: str, tmp_path: Path) -> None:
    earlier = started_run(settings(tmp_path, uri, name="earlier"), trained=20)
    earlier.end("failed", message="no server")
    run = started_run(settings(tmp_path, uri, name="later"))
    follower = FollowerProcess(run.directory)
    run.end("interrupted")
    report = follower.finish(timeout=0.01)
    assert not report.is_complete
    assert "in the background" in report.problem
    eventually(lambda: state_of(run).status == "KILLED")
    eventually(lambda: state_of(earlier).status == "FAILED")
    assert history(uri, state_of(earlier).run_id) == earlier.expected()


@pytest.fixture
def server(mlflow_server: MlflowServer) -> Iterator[MlflowServer]:
    """The server, for a test that kills it; restarts it afterwards."""
    yield mlflow_server
    mlflow_server.start()


def notices(run: RecordedRun) -> list[str]:
    """The messages of the run's notices."""
    return [notice.message for notice in select(read_all(run.directory), Notice)]


@pytest.mark.extended
def test_a_server_that_restarts_during_a_run_has_everything_once(
    server: MlflowServer, s3_api: S3Api, tmp_path: Path
) -> None:
    run = started_run(settings(tmp_path, server.uri))
    follower = FollowerProcess(run.directory)
    run.train(1, 30)
    eventually(lambda: state_of(run).newest_step.get("train") == 30)
    server.kill()
    run.train(31, 60)
    eventually(lambda: len(notices(run)) == 1)
    run.train(61, 90)
    server.start()
    eventually(lambda: len(notices(run)) == 2)
    assert "is unavailable" in notices(run)[0]
    assert "is available again" in notices(run)[1]
    assert state_of(run).newest_step["train"] == 90
    run.train(91, 100)
    run.end()
    report = follower.finish(timeout=PATIENCE)
    assert report.is_complete, report.problem
    assert history(server.uri, report.run_id) == run.expected()
    assert any(key.endswith("report.html") for key in s3_api.object_names())
