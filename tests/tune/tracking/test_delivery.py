"""What MLflow has of a real search, also of one whose server was away: the same command sends the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.distribution import RAY
from tests.engines import report_table
from tests.engines.mlflow_server import MlflowServer
from tests.training.launch.driver import ROOT
from tests.tune.search_driver import NAME, assert_counted_once, run_search, search_arguments, search_of
from training.tracking.state import TrackingState
from tune.history import SearchHistory

pytestmark = [pytest.mark.extended, pytest.mark.xdist_group(RAY)]


@pytest.fixture
def server(mlflow_server: MlflowServer) -> Iterator[MlflowServer]:
    """The server, for a test that kills it; restarts it afterwards."""
    yield mlflow_server
    mlflow_server.start()


def assert_delivered_once(search: Path, uri: str, *, trials: int) -> None:
    """The server has a run of the search and one of each trial, with all their metrics once."""
    names = [f"t{number:03d}" for number in range(1, trials + 1)]
    state = TrackingState.load(search)
    assert state is not None
    client = MlflowClient(tracking_uri=uri)
    runs = client.search_runs([state.experiment_id])
    assert Counter(run.data.tags.get("trial", "") for run in runs) == dict.fromkeys(["", *names], 1)
    history = SearchHistory.read(search)
    for run in runs:
        if "trial" in run.data.tags:
            points = client.get_metric_history(run.info.run_id, "validation/accuracy")
            expected = [report.step for report in history.trials[run.data.tags["trial"]].reports]
            assert [point.step for point in points] == expected
        else:
            assert run.info.status == "FINISHED"
            points = client.get_metric_history(run.info.run_id, "best_validation_accuracy")
            assert [point.step for point in points] == list(range(1, trials + 1))


def test_a_search_goes_on_without_its_server_and_the_same_command_sends_the_rest_once(
    server: MlflowServer, tmp_path: Path
) -> None:
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [0.003, 0.01, 0.03, 0.1]}},
        epochs=10,
        shared={"tracking": {"enabled": True, "uri": server.uri, "experiment": tmp_path.name}},
        algorithm="grid",
        trials=2,
        concurrency=1,
    )
    server.kill()
    ended = run_search(tmp_path, settings)
    [line] = [line for line in ended.out.splitlines() if line.startswith("  MLflow")]
    assert "incomplete" in line
    assert server.uri.removeprefix("http://") in line or "refused" in line
    assert f"make tune NAME={tmp_path / 's'} sends the rest" in line

    server.start()
    search = tmp_path / "s"
    ended = run_search(tmp_path, settings)
    assert "incomplete" not in ended.out
    assert_counted_once(search, trials=2)
    assert_delivered_once(search, server.uri, trials=2)


@pytest.mark.xdist_group(RAY)
def test_a_search_is_a_parent_run_with_a_child_for_each_trial(store_uri: str, tmp_path: Path) -> None:
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [3e-3, 1e-2, 1e-6]}},
        epochs=3,
        shared={"tracking": {"enabled": True, "uri": store_uri, "registered_model": "best"}},
        algorithm="grid",
        trials=3,
        scheduler={"name": "asha", "grace_epochs": 1, "reduction_factor": 2},
    )

    def call(*module: str) -> None:
        """In the test's folder, where the store keeps its artifacts."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-m", *module],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    call("tune", *search_arguments(tmp_path, settings))
    report_table.ran("Ray cluster")
    search = tmp_path / NAME
    history = SearchHistory.read(search)
    best = history.ranked()[0]
    client = MlflowClient(tracking_uri=store_uri)
    state = TrackingState.load(search)
    assert state is not None
    parent = client.get_run(state.run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["best_trial"] == best.id
    assert parent.data.params["space.optimizer.learning_rate"] == "{choice: [0.003, 0.01, 1e-06]}"
    runs = client.search_runs([state.experiment_id], f"tags.mlflow.parentRunId = '{state.run_id}'")
    assert {run.data.tags["trial"] for run in runs} == set(history.trials)
    for run in runs:
        trial = history.trials[run.data.tags["trial"]]
        assert run.data.params["optimizer.learning_rate"] == str(trial.values["optimizer.learning_rate"])
        points = client.get_metric_history(run.info.run_id, "validation/accuracy")
        assert [point.step for point in points][: len(trial.reports)] == [report.step for report in trial.reports]
        assert run.info.status == {"done": "FINISHED", "stopped": "KILLED"}[str(trial.status)]
    versions = client.search_model_versions("name = 'best'")
    assert [version.tags["trial"] for version in versions] == [best.id]
    assert {version.tags["search_run_id"] for version in versions} == {state.run_id}
    artifacts = {file.path for file in client.list_artifacts(state.run_id)}
    assert {"search.yaml", "best.yaml", "report.html"} <= artifacts

    # Delivering again changes nothing.
    call("tune.tracking.follow", str(search))
    assert len(client.search_runs([state.experiment_id])) == 1 + len(history.trials)
    assert len(client.search_model_versions("name = 'best'")) == 1
