"""Checkpoints as logged models, on a real server."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel

from observability.runlog import Evaluated
from tests.engines.mlflow_server import MlflowServer
from tests.training.tracking.recorded import RecordedRun, history, settings, started_run
from tests.training.tracking.test_delivery import deliver
from training.checkpoint.late_metrics import FILE, LateMetrics
from training.checkpoint.manifest import MODEL_FILE, Identity
from training.checkpoint.store import FOLDER, bytes_writer, folder_name, local_store
from training.tracking.checkpoint_models import BEST, MODEL_TYPE, CheckpointModels
from training.tracking.state import TrackingState

IDENTITY = Identity(model="mlp", dataset_fingerprint="f", global_batch=64, seed=0, world=2, platform_version="1")


def save(run: RecordedRun, step: int, metric: float | None, *, content: bytes = b"weights") -> None:
    """Commit a checkpoint with one file."""
    local_store(run.directory / FOLDER).commit(
        step=step, identity=IDENTITY, metric=metric, files={MODEL_FILE: bytes_writer(content)}, expected_bytes=7
    )


def evaluated(step: int, accuracy: float) -> Evaluated:
    """An evaluation."""
    return Evaluated(
        split="validation", step=step, epoch=1, loss=1.0, metrics={"accuracy": accuracy}, samples=9, seconds=0.1
    )


def interrupted_run(uri: str, folder: Path) -> RecordedRun:
    """A run with three checkpoints, one of which was not evaluated, that has been interrupted."""
    run = started_run(settings(folder, uri))
    for step, accuracy in ((10, 0.7), (20, 0.9)):
        run.write(evaluated(step, accuracy))
        save(run, step, -accuracy)  # the log of this run does not say that higher is better
    save(run, 25, None)
    run.end("interrupted", step=25)
    return run


def models(uri: str, state: TrackingState) -> dict[str, LoggedModel]:
    """The logged models of the run's checkpoints by name; fails if two have the same."""
    found = MlflowClient(uri).search_logged_models([state.experiment_id], f"source_run_id = '{state.run_id}'")
    named = {model.name: model for model in found if model.model_type == MODEL_TYPE}
    assert len(named) == len([model for model in found if model.model_type == MODEL_TYPE])
    return named


def metrics(model: LoggedModel) -> dict[str, float]:
    """The metrics of a logged model by name."""
    return {metric.key: metric.value for metric in model.metrics or ()}


@pytest.mark.extended
def test_each_checkpoint_is_logged_once_with_its_evaluation(mlflow_server: MlflowServer, tmp_path: Path) -> None:
    run = interrupted_run(mlflow_server.uri, tmp_path)
    state = deliver(run)
    found = models(mlflow_server.uri, state)
    assert sorted(found) == ["step-00000010", "step-00000020", "step-00000025"]
    evaluation = {"validation/loss": 1.0, "validation/accuracy": 0.9, "validation/seconds": 0.1}
    assert metrics(found["step-00000020"]) == evaluation
    assert metrics(found["step-00000025"]) == {}
    searched = MlflowClient(mlflow_server.uri).search_logged_models(
        [state.experiment_id], f"metrics.`validation/accuracy` > 0.8 AND tags.`{BEST}` = 'true'"
    )
    assert [model.name for model in searched] == ["step-00000020"]
    assert [name for name, model in found.items() if model.tags.get(BEST)] == ["step-00000020"]
    folder = run.directory / FOLDER / folder_name(10)
    tags = found["step-00000010"].tags
    assert (tags["checkpoint.path"], tags["checkpoint.bytes"]) == (str(folder), "7")
    assert tags["checkpoint.weights_sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert tags["checkpoint.manifest_sha256"] == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert {str(model.status) for model in found.values()} == {"READY"}
    outputs = MlflowClient(mlflow_server.uri).get_run(state.run_id).outputs.model_outputs
    assert {output.model_id: output.step for output in outputs} == {
        model.model_id: int(name[5:]) for name, model in found.items()
    }
    TrackingState(uri=mlflow_server.uri, run_key=state.run_key).save(run.directory)
    again = deliver(run)
    after = models(mlflow_server.uri, again)
    assert {name: dict(model) for name, model in after.items()} == {name: dict(model) for name, model in found.items()}
    assert len(MlflowClient(mlflow_server.uri).get_run(again.run_id).outputs.model_outputs) == 3
    assert history(mlflow_server.uri, again.run_id) == run.expected()


def test_a_checkpoint_validated_after_its_commit_may_be_the_best(mlflow_server: MlflowServer, tmp_path: Path) -> None:
    run = interrupted_run(mlflow_server.uri, tmp_path)
    store = local_store(run.directory / FOLDER)
    late = LateMetrics(metrics={"loss": -1.0})  # the log of this run names no other metric
    (store.path(25) / FILE).write_text(json.dumps(asdict(late)), encoding="utf-8")
    found = models(mlflow_server.uri, deliver(run))
    assert [name for name, model in found.items() if model.tags.get(BEST)] == ["step-00000025"]


def test_an_interrupted_delivery_is_completed(
    mlflow_server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = interrupted_run(mlflow_server.uri, tmp_path)
    state, client = deliver(run), MlflowClient(mlflow_server.uri)
    record = CheckpointModels(client, run.directory, experiment_id=state.experiment_id, run_id=state.run_id)
    for step, method in enumerate(("log_batch", "log_outputs", "finalize_logged_model"), start=30):
        save(run, step, -0.9 - step / 1000)
        run.write(evaluated(step, 0.9 + step / 1000))

        def fail(*_: object, **__: object) -> None:
            raise ConnectionError(method)  # noqa: B023 - called at once

        with monkeypatch.context() as patched:
            patched.setattr(client, method, fail)
            with pytest.raises(ConnectionError, match=method):
                record.update()
        record.update()
        found, name = models(mlflow_server.uri, state), f"step-{step:08}"
        assert [one for one, model in found.items() if model.tags.get(BEST)] == [name]
        assert metrics(found[name])["validation/accuracy"] == 0.9 + step / 1000
        assert str(found[name].status) == "READY"
        assert len(client.get_run(state.run_id).outputs.model_outputs) == step - 26


def test_a_checkpoint_removed_or_replaced_loses_its_logged_model(mlflow_server: MlflowServer, tmp_path: Path) -> None:
    run = interrupted_run(mlflow_server.uri, tmp_path)
    before = models(mlflow_server.uri, deliver(run))
    run.start(at_step=20)
    shutil.rmtree(run.directory / FOLDER / folder_name(10))
    save(run, 25, -0.95, content=b"other weights")
    run.write(evaluated(25, 0.95))
    run.end("interrupted", step=25)
    after = models(mlflow_server.uri, deliver(run))
    assert sorted(after) == ["step-00000020", "step-00000025"]
    assert after["step-00000020"].model_id == before["step-00000020"].model_id
    assert after["step-00000025"].model_id != before["step-00000025"].model_id
    assert [name for name, model in after.items() if model.tags.get(BEST)] == ["step-00000025"]


def test_a_run_without_checkpoint_models_records_none(mlflow_server: MlflowServer, tmp_path: Path) -> None:
    run = interrupted_run(mlflow_server.uri, tmp_path)
    tracking = run.settings.tracking.model_copy(update={"checkpoint_models": False})
    run.settings = run.settings.model_copy(update={"tracking": tracking})
    run.start(at_step=25)
    run.end("interrupted", step=25)
    assert models(mlflow_server.uri, deliver(run)) == {}
