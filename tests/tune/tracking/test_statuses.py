"""The status of each trial's run in MLflow, in a SQLite store."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from observability.runlog import RunEnded, RunLogWriter, RunStarted
from tests.tune.sample_search import SampleSearch
from training import environment
from training.tracking.state import TrackingState
from tune.folder import SearchFolder
from tune.tracking.parent import SearchDelivery

FAILING = {"t001": "raised", "t002": "stopped by the search", "t003": "killed"}


def test_a_trial_that_failed_is_failed_however_its_run_ended(
    store_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    search = SampleSearch(trials=3, epochs=3, failing=FAILING, scheduler={"name": "none"})
    shared = search.history.started[0].shared
    shared["tracking"] = {"uri": store_uri}
    folder = SearchFolder(search.write(tmp_path / "s"))
    folder.settings_file.touch()
    ends = {"t001": "failed", "t002": "interrupted"}
    for trial in search.history.trials:
        with RunLogWriter(folder.trial(trial).path) as log:
            log.write(RunStarted(run=trial, settings=shared, environment=environment.describe(None)))
            if status := ends.get(trial):
                log.write(RunEnded(status=status, step=3, message=FAILING.get(trial, "")))
    SearchDelivery(folder, search.history).deliver(is_finished=True)
    state = TrackingState.load(folder.path)
    assert state is not None
    runs = {
        run.data.tags["trial"]: run
        for run in MlflowClient(store_uri).search_runs([state.experiment_id])
        if "trial" in run.data.tags
    }
    assert {trial: run.info.status for trial, run in runs.items()} == dict.fromkeys(FAILING, "FAILED")
    assert {trial: run.data.tags["error"] for trial, run in runs.items()} == FAILING
