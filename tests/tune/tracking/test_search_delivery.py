"""What MLflow has of a real search: a parent run, a child run for each trial, one version of the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.distribution import RAY
from tests.engines import report_table
from tests.training.launch.driver import ROOT
from tests.tune.search_driver import SearchDriver, search_of
from training.errors import ExitStatus
from training.tracking.state import TrackingState
from tune.history import SearchHistory


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
    with SearchDriver(tmp_path, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    report_table.ran("Ray cluster")
    history = SearchHistory.read(driver.run)
    best = history.ranked()[0]
    client = MlflowClient(tracking_uri=store_uri)
    state = TrackingState.load(driver.run)
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
    follow = [sys.executable, "-m", "tune.tracking.follow", str(driver.run)]
    subprocess.run(follow, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120)
    assert len(client.search_runs([state.experiment_id])) == 1 + len(history.trials)
    assert len(client.search_model_versions("name = 'best'")) == 1
