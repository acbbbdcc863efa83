"""What a server of MLflow 2, which has no logged models, gets of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.engines.mlflow_server import MlflowServer, local_server
from tests.engines.report_table import ran, skipped
from tests.training.tracking.recorded import settings, started_run
from tests.training.tracking.test_delivery import deliver

pytestmark = pytest.mark.extended


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    """A server of MLflow 2 with a store of files."""
    folder = os.environ.get("OLD_MLFLOW_FOLDER")
    if folder is None:
        skipped("MLflow 2", "OLD_MLFLOW_FOLDER is not set", "tests/training/tracking/old_mlflow.lock says how")
    places = {"store": str(tmp_path / "store"), "artifacts": str(tmp_path / "artifacts")}
    started = local_server(tmp_path, **places, environment={"PYTHONPATH": folder})
    started.start()
    ran("MLflow 2")
    yield started
    started.kill()


def test_all_but_the_logged_models_is_delivered(server: MlflowServer, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, server.uri), trained=30)
    run.end()
    state = deliver(run)
    client = MlflowClient(server.uri)
    stored = client.get_run(state.run_id)
    assert (stored.info.status, state.problem, state.model_version) == ("FINISHED", "", "")
    assert state.lacks.startswith("MLflow 2.22.4 has no logged models")
    assert len(client.get_metric_history(state.run_id, "train/loss")) == 30
    assert {one.path for one in client.list_artifacts(state.run_id)} >= {"weights", "settings.yaml", "report.html"}
