"""The cleanup of a server with two teams, in its database and its bucket."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from platform_charts.images.mlflow_server.cleanup import artifact_prefix
from platform_charts.images.mlflow_server.expired import Expired
from tests.engines.mlflow_server import MlflowServer
from tests.platform_charts.images.mlflow_server.platform import Platform

TEAM = "vision"
EXTERNAL = {"mlflow.model.isExternal": "true"}
DAY = 86_400_000


class Store:
    """What the team does with MLflow, and what is left in the database and the bucket."""

    def __init__(self, services: Platform, uri: str, folder: Path) -> None:
        self.services = services
        self._folder = folder
        self.client = MlflowClient(uri)

    def experiment(self) -> str:
        """A new experiment."""
        return str(self.client.create_experiment(uuid.uuid4().hex))

    def run(self, experiment: str) -> str:
        """A run with metrics and a file."""
        run = self.client.create_run(experiment).info.run_id
        for step in range(3):
            self.client.log_metric(run, "loss", 1.0, step=step)
        self.client.log_text(run, "x", "notes.txt")
        return str(run)

    def model(self, experiment: str, run: str, *, tags: dict[str, str] | None = None) -> str:
        """A logged model of a run, with a file unless it is external."""
        model = self.client.create_logged_model(experiment, "model", run, tags)
        if not tags:
            notes = self._folder / "MLmodel"
            notes.write_text("flavors: {}\n", encoding="utf-8")
            self.client.log_model_artifact(model.model_id, str(notes))
        self.client.finalize_logged_model(model.model_id, "READY")
        return str(model.model_id)

    def age(self, table: str, column: str, identifier: str, *, days: int = 31) -> None:
        """Make a deletion look older than it is."""
        key = {"runs": "run_uuid", "logged_models": "model_id", "experiments": "experiment_id"}[table]
        self.services.query(
            f"UPDATE {table} SET {column} = {column} - {days * DAY} WHERE {key} = '{identifier}' RETURNING 1"  # noqa: S608
        )

    def delete_run(self, run: str, *, days: int = 31) -> None:
        """Delete a run that many days ago."""
        self.client.delete_run(run)
        self.age("runs", "deleted_time", run, days=days)

    def runs(self, experiment: str) -> set[str]:
        """All runs of an experiment, deleted ones too."""
        return {run.info.run_id for run in self.client.search_runs([experiment], "", ViewType.ALL)}

    def files(self, identifier: str) -> list[str]:
        """Keys of the files of a run or a logged model."""
        return [name for name in self.services.object_names() if f"/{identifier}/" in name]

    def rows(self, table: str, column: str, identifier: str) -> int:
        """Number of rows about it."""
        [(count,)] = self.services.query(f"SELECT count(*) FROM {table} WHERE {column} = '{identifier}'")  # noqa: S608
        return int(count)


@pytest.fixture
def store(server: MlflowServer, services: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The team's view of the server."""
    for name, value in {**services.credentials(TEAM), "MLFLOW_ENABLE_WORKSPACES": "true"}.items():
        monkeypatch.setenv(name, value)
    return Store(services, server.uri, tmp_path)


@pytest.mark.extended
def test_a_run_deleted_long_ago_is_gone_and_a_younger_one_can_be_restored(store: Store) -> None:
    experiment = store.experiment()
    old, young, active = (store.run(experiment) for _ in range(3))
    store.delete_run(old)
    store.delete_run(young, days=29)
    assert store.services.clean_up() == 0
    assert store.runs(experiment) == {young, active}
    assert (store.rows("metrics", "run_uuid", old), store.rows("metrics", "run_uuid", young)) == (0, 3)
    assert (len(store.files(old)), len(store.files(young))) == (0, 1)
    store.client.restore_run(young)
    assert store.client.get_run(young).data.metrics == {"loss": 1.0}


def test_a_preview_names_what_it_would_delete_and_deletes_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = store.experiment()
    run = store.run(experiment)
    store.delete_run(run)
    assert store.services.clean_up(is_preview=True) == 0
    assert f"would delete the run {run} of workspace {TEAM}\n" in capsys.readouterr().out
    assert store.runs(experiment) == {run}
    assert len(store.files(run)) == 1


def test_what_a_registered_model_refers_to_is_kept_with_its_files(store: Store) -> None:
    experiment = store.experiment()
    run = store.run(experiment)
    model = store.model(experiment, run)
    store.client.create_registered_model("kept")
    store.client.create_model_version("kept", f"models:/{model}", run_id=run, model_id=model)
    store.client.delete_logged_model(model)
    store.age("logged_models", "last_updated_timestamp_ms", model)
    store.delete_run(run)
    store.client.delete_experiment(experiment)
    store.age("experiments", "last_update_time", experiment)
    store.age("runs", "deleted_time", run)
    assert store.services.clean_up() == 0
    assert (store.rows("runs", "run_uuid", run), store.rows("logged_models", "model_id", model)) == (1, 1)
    assert (len(store.files(run)), len(store.files(model))) == (1, 1)
    store.client.delete_model_version("kept", "1")
    assert store.services.clean_up() == 0
    assert (store.rows("runs", "run_uuid", run), store.rows("logged_models", "model_id", model)) == (0, 0)
    assert (store.files(run), store.files(model)) == ([], [])
    assert store.rows("experiments", "experiment_id", experiment) == 0


def test_checkpoints_of_an_expired_run_go_with_it_and_models_with_files_stay(store: Store) -> None:
    experiment = store.experiment()
    run = store.run(experiment)
    checkpoint, model = store.model(experiment, run, tags=EXTERNAL), store.model(experiment, run)
    store.delete_run(run)
    assert store.services.clean_up() == 0
    found = store.client.search_logged_models([experiment])
    assert [one.model_id for one in found] == [model]
    assert store.rows("logged_model_tags", "model_id", checkpoint) == 0
    assert len(store.files(model)) == 1


def test_a_cleanup_tells_the_size_and_fails_when_the_storage_is_almost_full(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.services.clean_up(storage_gib=1) == 0
    printed = capsys.readouterr()
    assert re.search(r"database: 0\.\d+ of 1 GiB \([0-9.]+%\); \w+ [\d,]+ rows, 0\.", printed.out)
    assert printed.err == ""
    assert store.services.clean_up(storage_gib=0.005) == 1
    assert "raise database.max_allocated_gib" in capsys.readouterr().err


def test_only_a_folder_of_its_own_in_the_bucket_is_deleted() -> None:
    for location in (
        "s3://bucket/vision/1/abc/artifacts",
        "mlflow-artifacts:/vision/1/artifacts",
        "mlflow-artifacts:/",
    ):
        item = Expired(kind="run", identifier="abc", workspace=TEAM, experiment=1, artifacts=location)
        assert artifact_prefix(item) is None, location
