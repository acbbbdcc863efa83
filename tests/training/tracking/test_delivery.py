"""Delivery of a run to a SQLite store, and the model that is registered in it."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
import safetensors.torch
import torch
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND
from torch import Tensor, nn

from observability.goodput import GoodputLedger
from observability.runlog import Step
from observability.time_classes import CLASSES
from tests.training.tracking.recorded import (
    SPEC,
    START,
    InProcessRegistration,
    RecordedRun,
    history,
    settings,
    started_run,
)
from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.models.registry import build_model
from training.tracking import delivery, model
from training.tracking.delivery import MAX_METRICS, Delivery, last_start
from training.tracking.locations import EMBEDDED_FOLDER, embedded_uri
from training.tracking.payload import parameters
from training.tracking.state import StoreUnavailableError, TrackingState
from training.tracking.sync import sync


def deliver(run: RecordedRun, *, is_finished: bool = True) -> TrackingState:
    """Deliver all new events with a new `Delivery`."""
    started = last_start(run.directory)
    assert started is not None
    found = Delivery(run.directory, started)
    found.deliver(is_finished=is_finished)
    return found.state


def stored_run(uri: str, state: TrackingState) -> Run:
    """The run in the store."""
    return MlflowClient(tracking_uri=uri).get_run(state.run_id)


@pytest.fixture(scope="module")
def finished(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RecordedRun, TrackingState]:
    """A store, and a finished run that was delivered to it; no test changes it."""
    folder = tmp_path_factory.mktemp("finished")
    uri = f"sqlite:///{shutil.copy(empty_store, folder / 'mlflow.db')}"
    run = started_run(settings(folder, uri), trained=300)
    run.end()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(delivery, "ModelRegistration", InProcessRegistration)
        return uri, run, deliver(run)


def test_a_finished_run_is_delivered_completely(finished: tuple[str, RecordedRun, TrackingState]) -> None:
    uri, run, state = finished
    stored, client = stored_run(uri, state), MlflowClient(tracking_uri=uri)
    delivered = history(uri, state.run_id)
    assert delivered == run.expected()
    assert sum(map(len, delivered.values())) > 3 * MAX_METRICS, "in several batches"
    assert stored.data.params == parameters(run.settings)
    assert (stored.info.status, stored.info.run_name) == ("FINISHED", "run")
    assert (stored.info.start_time, stored.info.end_time) == (START * 1000, (START + 1000) * 1000)
    assert stored.data.tags["world"] == "2"
    assert stored.data.tags["dataset_fingerprint"] == "f" * 64
    assert [item.dataset.digest for item in stored.inputs.dataset_inputs] == ["f" * 36]
    artifacts = {item.path for item in client.list_artifacts(state.run_id)}
    assert artifacts == {"environment.json", "settings.yaml", "report.html", "weights"}
    environment = client.download_artifacts(state.run_id, "environment.json")
    assert "torch" in json.loads(Path(environment).read_text())["packages"]


def test_the_registered_model_predicts_like_the_trained_one(finished: tuple[str, RecordedRun, TrackingState]) -> None:
    uri, run, state = finished
    mlflow.set_tracking_uri(uri)
    address = f"models:/mlp-digits/{state.model_version}"
    trained = build_model(run.settings.model, SPEC).eval()
    safetensors.torch.load_model(trained, run.directory / "model" / "model.safetensors")
    inputs = np.random.default_rng(1).standard_normal((7, *SPEC.shape)).astype(np.float32)
    with torch.no_grad():
        expected = trained(torch.from_numpy(inputs)).numpy()
        logits = mlflow.pytorch.load_model(address)(torch.from_numpy(inputs)).numpy()
    for found in (mlflow.pyfunc.load_model(address).predict(inputs), logits):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_server_without_logged_models_gets_the_rest_of_the_run(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow 2 answers 404 to every path of theirs, which the client reports with this code."""

    def search(*_: object, **__: object) -> None:
        raise MlflowException("API request failed with error code 404 != 200", error_code=ENDPOINT_NOT_FOUND)

    monkeypatch.setattr(MlflowClient, "search_logged_models", search)
    run = started_run(settings(tmp_path, uri), trained=30)
    run.end()
    state = deliver(run)
    stored = stored_run(uri, state)
    assert (stored.info.status, state.status, state.problem, state.model_version) == ("FINISHED", "FINISHED", "", "")
    assert "train/loss" in stored.data.metrics
    assert state.lacks.startswith("MLflow ")
    assert {one.path for one in MlflowClient(uri).list_artifacts(state.run_id)} >= {"weights", "settings.yaml"}


def test_a_run_is_delivered_while_it_trains_and_its_end_once(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri), trained=10)
    first = deliver(run, is_finished=False)
    assert history(uri, first.run_id) == run.expected()
    run.train(11, 40)
    run.end()
    assert stored_run(uri, deliver(run, is_finished=False)).info.status == "RUNNING"
    finished = deliver(run)
    assert stored_run(uri, finished).info.status == "FINISHED"
    (run.directory / "tracking.json").unlink()
    TrackingState(uri=uri, run_key=first.run_key).save(run.directory)
    assert deliver(run) == finished
    assert history(uri, finished.run_id) == run.expected()


@pytest.mark.extended
def test_a_kill_before_any_save_of_the_cursor_neither_loses_nor_duplicates_anything(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri), trained=100)
    run.end()
    command = [sys.executable, "-m", "tests.training.tracking.kill_at_each_save", str(run.directory)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert int(done.stdout) >= 5
    state = TrackingState.load(run.directory)
    assert state is not None
    client = MlflowClient(tracking_uri=uri)
    assert history(uri, state.run_id) == run.expected()
    assert len(client.search_runs([state.experiment_id])) == 1
    assert len(client.search_model_versions(f"run_id = '{state.run_id}'")) == 1
    assert stored_run(uri, state).info.status == "FINISHED"


def half_delivered_run(uri: str, folder: Path) -> tuple[RecordedRun, TrackingState]:
    """A run that was killed after 40 steps, and its delivery state."""
    run = started_run(settings(folder, uri), trained=40)
    state = deliver(run)
    assert stored_run(uri, state).info.status == "KILLED"
    return run, state


def resumed_in(folder: Path, run: RecordedRun) -> RecordedRun:
    """The run after it was resumed in another folder and has trained to step 60."""
    place = run.settings.run.model_copy(update={"directory": folder.parent, "name": folder.name})
    resumed = RecordedRun(run.settings.model_copy(update={"run": place}))
    resumed.start(at_step=40)
    resumed.train(41, 60)
    return resumed


def test_a_copy_that_continues_leaves_the_mlflow_run_of_the_original_alone(uri: str, tmp_path: Path) -> None:
    original, first = half_delivered_run(uri, tmp_path)
    shutil.copytree(original.directory, tmp_path / "copy")
    copy = resumed_in(tmp_path / "copy", original)
    second = deliver(copy)
    assert second.run_id != first.run_id
    assert history(uri, first.run_id) == original.expected()
    assert history(uri, second.run_id) == copy.expected()
    assert stored_run(uri, second).info.run_name == "copy"
    assert deliver(copy) == second


def test_a_moved_run_and_one_restored_from_a_backup_continue_their_mlflow_run(uri: str, tmp_path: Path) -> None:
    run, first = half_delivered_run(uri, tmp_path)
    moved = resumed_in(run.directory.rename(tmp_path / "moved"), run)
    assert deliver(moved).run_id == first.run_id
    assert history(uri, first.run_id) == moved.expected()
    shutil.copytree(moved.directory, tmp_path / "backup")
    shutil.rmtree(moved.directory)
    shutil.copytree(tmp_path / "backup", moved.directory)
    assert deliver(resumed_in(moved.directory, run)).run_id == first.run_id


def test_a_resumed_run_continues_its_mlflow_run_with_steps_once_and_all_goodput(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri), trained=47)
    run.end("failed", step=40, message="the disk is full")
    first = deliver(run)
    stored = stored_run(uri, first)
    assert (stored.info.status, stored.data.tags["error"], first.model_version) == ("FAILED", "the disk is full", "")
    loop = run.settings.loop.model_copy(update={"epochs": 20})
    run.settings = run.settings.model_copy(update={"loop": loop})
    run.start(at_step=40)
    run.train(41, 100, delay=2000)
    assert stored_run(uri, deliver(run, is_finished=False)).info.status == "RUNNING"
    run.end(step=100)
    second = deliver(run)
    assert second.run_id == first.run_id
    deliver(run)
    assert history(uri, second.run_id) == run.expected()
    stored = stored_run(uri, second)
    assert (stored.info.status, stored.data.tags["restored_from_step"]) == ("FINISHED", "40")
    assert (stored.data.params["loop.epochs"], stored.data.tags["changed.loop.epochs"]) == ("10", "20")
    assert "error" not in stored.data.tags
    ledger, metrics = GoodputLedger.of_run(run.directory), stored.data.metrics
    points = MlflowClient(tracking_uri=uri).get_metric_history(second.run_id, "goodput/ratio")
    assert [point.step for point in points] == [40, 100]
    assert metrics["goodput/ratio"] == pytest.approx(ledger.ratio)
    assert {name: metrics[f"goodput/{name}_seconds"] for name in CLASSES} == pytest.approx(ledger.seconds)
    assert [name for name in metrics if name.startswith("cost/")] == []


def test_the_cost_is_delivered_where_a_price_is_known(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start(dollars_per_hour=36.0)
    run.train(1, 40)
    run.end("interrupted", step=40, message="stopped")
    stored = stored_run(uri, deliver(run))
    assert (stored.info.status, stored.data.tags["error"]) == ("KILLED", "stopped")
    metrics, cost = stored.data.metrics, GoodputLedger.of_run(run.directory).cost
    assert cost is not None
    assert metrics["cost/dollars"] == pytest.approx(cost.total)
    assert metrics["cost/productive_dollars"] == pytest.approx(cost.by_class["productive"])
    assert metrics["cost/unpriced_seconds"] == 0.0
    assert "cost/queue_dollars" not in metrics


def test_parameters_beyond_the_limit_of_a_request_are_all_delivered(uri: str, tmp_path: Path) -> None:
    options = {f"option_{number}": number for number in range(150)}
    run = RecordedRun(settings(tmp_path, uri))
    run.settings = run.settings.model_copy(update={"model": ModelSettings(name="mine:make", options=dict(options))})
    run.start()
    assert stored_run(uri, deliver(run)).data.params == parameters(run.settings)


def test_nan_and_infinity_are_delivered(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri))
    values = {"loss": math.nan, "gradient_norm": math.inf, "learning_rate": 0.1, "seconds": 0.1}
    run.write(Step(step=1, epoch=1, samples=64, **values))  # type: ignore[arg-type]
    stored = history(uri, deliver(run).run_id)
    assert math.isnan(stored["train/loss"][0][1])
    assert stored["train/gradient_norm"] == [(1, sys.float_info.max)]


def test_a_moved_store_keeps_the_run_and_a_new_one_gets_its_history(
    uri: str, empty_store: Path, tmp_path: Path
) -> None:
    run = started_run(settings(tmp_path, uri), trained=30)
    first = deliver(run)
    run.settings = settings(tmp_path, f"sqlite:///{shutil.copy(tmp_path / 'mlflow.db', tmp_path / 'moved.db')}")
    run.start(at_step=10)
    assert deliver(run).run_id == first.run_id
    other = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'other.db')}"
    run.settings = settings(tmp_path, other)
    run.start(at_step=20)
    second = deliver(run)
    assert second.run_id != first.run_id
    assert history(other, second.run_id) == run.expected()


def test_a_run_whose_store_was_never_available_can_be_delivered_to_another(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, "http://127.0.0.1:1"))
    with pytest.raises(StoreUnavailableError, match="API request to http://127"):
        deliver(run)
    run.settings = settings(tmp_path, uri)
    run.start()
    assert history(uri, deliver(run).run_id) == run.expected()


@pytest.mark.parametrize("is_store_there", [True, False])
def test_a_run_resumed_from_another_folder_stays_in_its_embedded_store(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_store_there: bool
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        (folder / EMBEDDED_FOLDER).mkdir(parents=True)
        shutil.copy(empty_store, folder / EMBEDDED_FOLDER / "mlflow.db")
    monkeypatch.chdir(here)
    run = started_run(settings(tmp_path, None))
    first = deliver(run)
    if not is_store_there:
        (here / EMBEDDED_FOLDER / "mlflow.db").unlink()
    monkeypatch.chdir(elsewhere)
    run.start()
    second = deliver(run)
    assert (second.run_id == first.run_id) is is_store_there
    assert second.uri == f"sqlite:///{(here if is_store_there else elsewhere) / EMBEDDED_FOLDER / 'mlflow.db'}"


@pytest.mark.extended
def test_concurrent_first_runs_create_the_embedded_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = "import sys; from training.tracking.client import connect; connect(sys.argv[1]).search_experiments()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script, embedded_uri()]
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    errors = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert (EMBEDDED_FOLDER / "mlflow.db").exists()


class Branching(nn.Module):
    """Negates the logits of dark inputs: torch.export cannot export control flow that depends on data."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.shape[0] * spec.shape[1] * spec.shape[2], spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images (n, channels, height, width) to logits (n, classes)."""
        logits: Tensor = self.head(inputs.flatten(1))
        return logits if float(inputs.sum()) > 0 else -logits


def test_a_model_that_cannot_be_exported_is_pickled(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri, model={"name": f"{__name__}:Branching"}))
    run.end()
    sync([run.directory])
    mlflow.set_tracking_uri(uri)
    loaded = mlflow.pytorch.load_model(f"models:/{__name__}.Branching-digits/1")
    bright = torch.ones(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(loaded(bright), loaded(-bright) + 2 * loaded.head.bias)


def test_our_models_can_be_exported_for_any_batch_size() -> None:
    spec = SampleSpec(shape=(3, 32, 32), outputs=10)
    for name in ("mlp", "simple_cnn", "resnet18"):
        module = build_model(ModelSettings(name=name), spec).eval()
        assert model.is_exportable(module, torch.from_numpy(model.input_example(spec))), name


def test_a_run_that_trains_further_registers_a_second_version(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    for number in range(2):
        run.start(at_step=number)
        run.end(seed=number)
        sync([run.directory])
    versions = MlflowClient(tracking_uri=uri).search_model_versions("name = 'mlp-digits'")
    assert sorted(int(version.version) for version in versions) == [1, 2]
    assert len({version.tags["weights_sha256"] for version in versions}) == 2
