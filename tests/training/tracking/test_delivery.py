"""Delivery of a run to a real store, SQLite."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from observability.runlog import Step
from tests.training.tracking.recorded import SPEC, START, RecordedRun, history, settings
from training.config.schema import ModelSettings
from training.models.registry import build_model
from training.tracking.delivery import BATCH, Delivery, last_start
from training.tracking.locations import EMBEDDED_FOLDER, embedded_uri
from training.tracking.payload import parameters
from training.tracking.state import TrackingState


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables and nothing in them: to make one takes seconds, to copy one nothing."""
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def uri(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store of the test's own; relative paths of MLflow's end up beside it."""
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"


def deliver(run: RecordedRun, *, is_over: bool = True) -> TrackingState:
    """Deliver what there is, as a process that has just started would."""
    started = last_start(run.directory)
    assert started is not None
    delivery = Delivery(run.directory, started)
    delivery.advance(is_over=is_over)
    return delivery.state


def found(uri: str, state: TrackingState) -> Run:
    """The run as the store has it."""
    return MlflowClient(tracking_uri=uri).get_run(state.run_id)


def finished(uri: str, folder: Path) -> RecordedRun:
    """A run from its start to its end."""
    run = RecordedRun(settings(folder, uri))
    run.start()
    run.train(1, 100)
    run.end()
    return run


def test_a_finished_run_arrives_whole(uri: str, tmp_path: Path) -> None:
    run = finished(uri, tmp_path)
    state = deliver(run)
    stored = found(uri, state)
    assert history(uri, state.run_id) == run.expected()
    assert stored.data.params == parameters(run.settings)
    assert (stored.info.status, stored.info.run_name) == ("FINISHED", "run")
    assert (stored.info.start_time, stored.info.end_time) == (START * 1000, (START + 1000) * 1000)
    assert stored.data.tags["world"] == "2"
    assert stored.data.tags["dataset_fingerprint"] == "f" * 64
    assert [item.dataset.digest for item in stored.inputs.dataset_inputs] == ["f" * 36]
    artifacts = {item.path for item in MlflowClient(tracking_uri=uri).list_artifacts(state.run_id)}
    assert artifacts == {"environment.json", "settings.yaml", "report.html", "weights"}


def test_the_environment_arrives_as_a_file(uri: str, tmp_path: Path) -> None:
    state = deliver(finished(uri, tmp_path))
    file = MlflowClient(tracking_uri=uri).download_artifacts(state.run_id, "environment.json")
    assert "torch" in json.loads(Path(file).read_text())["packages"]


def test_delivering_again_changes_nothing(uri: str, tmp_path: Path) -> None:
    run = finished(uri, tmp_path)
    first = deliver(run)
    (run.directory / "tracking.json").unlink()
    TrackingState(uri=uri, run_key=first.run_key).save(run.directory)
    again = deliver(run)
    assert again == first
    assert history(uri, again.run_id) == run.expected()


def test_killed_before_each_move_of_the_cursor_nothing_is_lost_or_doubled(uri: str, tmp_path: Path) -> None:
    run = finished(uri, tmp_path)
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
    assert found(uri, state).info.status == "FINISHED"


def test_what_is_in_the_log_is_delivered_while_the_run_goes_on(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.train(1, 10)
    state = deliver(run, is_over=False)
    assert history(uri, state.run_id) == run.expected()
    assert found(uri, state).info.status == "RUNNING"


def test_the_end_waits_for_the_report(uri: str, tmp_path: Path) -> None:
    run = finished(uri, tmp_path)
    assert found(uri, deliver(run, is_over=False)).info.status == "RUNNING"
    assert found(uri, deliver(run, is_over=True)).info.status == "FINISHED"


def test_a_long_log_goes_in_batches(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.train(1, 300)
    state = deliver(run)
    assert sum(map(len, history(uri, state.run_id).values())) > 3 * BATCH
    assert history(uri, state.run_id) == run.expected()


def test_a_resumed_run_is_the_same_run_and_steps_done_again_are_not_doubled(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.train(1, 47)
    first = deliver(run)
    assert found(uri, first).info.status == "KILLED"
    run.start(at_step=40)
    run.train(41, 100, delay=0.5)
    assert found(uri, deliver(run, is_over=False)).info.status == "RUNNING"
    run.end()
    second = deliver(run)
    assert second.run_id == first.run_id
    assert history(uri, second.run_id) == run.expected()
    stored = found(uri, second)
    assert (stored.info.status, stored.data.tags["restored_from_step"]) == ("FINISHED", "40")


def test_a_setting_changed_by_a_resume_is_told_by_a_tag(uri: str, tmp_path: Path) -> None:
    run = finished(uri, tmp_path)
    deliver(run)
    loop = run.settings.loop.model_copy(update={"epochs": 20})
    run.settings = run.settings.model_copy(update={"loop": loop})
    run.start(at_step=100)
    stored = found(uri, deliver(run))
    assert (stored.data.params["loop.epochs"], stored.data.tags["changed.loop.epochs"]) == ("10", "20")


def test_more_parameters_than_fit_a_request_all_arrive(uri: str, tmp_path: Path) -> None:
    options = {f"option_{number}": number for number in range(150)}
    run = RecordedRun(settings(tmp_path, uri))
    run.settings = run.settings.model_copy(update={"model": ModelSettings(name="mine:make", options=dict(options))})
    run.start()
    assert found(uri, deliver(run)).data.params == parameters(run.settings)


@pytest.mark.parametrize(("status", "expected"), [("failed", "FAILED"), ("interrupted", "KILLED")])
def test_a_run_that_did_not_finish_says_so(uri: str, tmp_path: Path, status: str, expected: str) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.end(status, message="the disk is full")
    state = deliver(run)
    stored = found(uri, state)
    assert (stored.info.status, stored.data.tags["error"], state.model_version) == (expected, "the disk is full", "")


def test_a_failed_run_that_is_resumed_loses_its_error(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.end("failed", message="the disk is full")
    deliver(run)
    run.start(at_step=20)
    assert "error" not in found(uri, deliver(run)).data.tags


def test_a_loss_that_is_not_a_number_arrives_as_one(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    values = {"loss": math.nan, "accuracy": 0.1, "gradient_norm": math.inf, "learning_rate": 0.1, "seconds": 0.1}
    run.write(Step(step=1, epoch=1, samples=64, **values))  # type: ignore[arg-type]
    stored = history(uri, deliver(run).run_id)
    assert math.isnan(stored["train/loss"][0][1])
    assert stored["train/gradient_norm"] == [(1, sys.float_info.max)]


def test_another_store_gets_the_whole_history(uri: str, empty_store: Path, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    run.train(1, 30)
    first = deliver(run)
    other = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'other.db')}"
    run.settings = settings(tmp_path, other)
    run.start(at_step=20)
    second = deliver(run)
    assert second.run_id != first.run_id
    assert history(other, second.run_id) == run.expected()


def test_a_run_that_never_met_its_store_can_be_sent_to_another(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, "http://127.0.0.1:1"))
    run.start()
    with pytest.raises(MlflowException, match="refused"):
        deliver(run)
    run.settings = settings(tmp_path, uri)
    run.start()
    assert history(uri, deliver(run).run_id) == run.expected()


def test_a_store_that_was_moved_goes_on_with_the_run(uri: str, tmp_path: Path) -> None:
    run = RecordedRun(settings(tmp_path, uri))
    run.start()
    first = deliver(run)
    moved = f"sqlite:///{shutil.copy(tmp_path / 'mlflow.db', tmp_path / 'moved.db')}"
    run.settings = settings(tmp_path, moved)
    run.start()
    assert deliver(run).run_id == first.run_id


def test_the_first_runs_of_a_machine_make_the_embedded_store_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "import sys; from training.tracking.client import connect; connect(sys.argv[1]).search_experiments()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script, embedded_uri()]
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    problems = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], problems
    assert (EMBEDDED_FOLDER / "mlflow.db").exists()


def test_the_registered_model_predicts_what_the_trained_one_does(uri: str, tmp_path: Path) -> None:
    import numpy as np  # noqa: PLC0415
    import safetensors.torch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    run = finished(uri, tmp_path)
    state = deliver(run)
    mlflow.set_tracking_uri(uri)
    address = f"models:/mlp-digits/{state.model_version}"
    trained = build_model(run.settings.model, SPEC).eval()
    safetensors.torch.load_model(trained, run.directory / "model" / "model.safetensors")
    inputs = np.random.default_rng(1).standard_normal((7, *SPEC.shape)).astype(np.float32)
    with torch.no_grad():
        expected = trained(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(mlflow.pyfunc.load_model(address).predict(inputs), expected, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        logits = mlflow.pytorch.load_model(address)(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
