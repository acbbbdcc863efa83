"""Delivery to a real MLflow server, with PostgreSQL and an S3 API if available."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest

from observability.runlog import Notice, read_all, select
from tests.engines.mlflow_server import MlflowServer
from tests.engines.s3 import S3Api
from tests.training.tracking.recorded import SPEC, RecordedRun, history, settings, started_run
from tests.training.tracking.test_follow import PATIENCE, eventually, state_of
from training.tracking.process import FollowerProcess


@pytest.fixture
def server(mlflow_server: MlflowServer) -> Iterator[MlflowServer]:
    """The server, for a test that kills it; restarts it afterwards."""
    yield mlflow_server
    mlflow_server.start()


def notices(run: RecordedRun) -> list[str]:
    """The messages of the run's notices."""
    return [notice.message for notice in select(read_all(run.directory), Notice)]


def test_a_server_gets_all_of_a_run_with_its_model(mlflow_server: MlflowServer, s3_api: S3Api, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, mlflow_server.uri))
    follower = FollowerProcess(run.directory)
    run.train(1, 100)
    run.end()
    report = follower.finish(timeout=PATIENCE)
    assert report.is_complete, report.problem
    assert report.page.startswith(f"{mlflow_server.uri}/#/experiments/")
    assert history(mlflow_server.uri, report.run_id) == run.expected()
    assert any(key.endswith("report.html") for key in s3_api.object_names())
    mlflow.set_tracking_uri(mlflow_server.uri)
    loaded = mlflow.pyfunc.load_model(f"models:/{report.model}")
    assert loaded.predict(np.zeros((5, *SPEC.shape), np.float32)).shape == (5, SPEC.outputs)


def test_a_server_that_restarts_during_a_run_has_everything_once(server: MlflowServer, tmp_path: Path) -> None:
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
