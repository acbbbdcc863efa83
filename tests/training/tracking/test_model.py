"""The registered model."""

from __future__ import annotations

from pathlib import Path

import mlflow
import numpy as np
import torch
from mlflow import MlflowClient

from tests.training.tracking.recorded import RecordedRun, settings, started_run
from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.models.registry import build_model
from training.tracking import model
from training.tracking.sync import sync


def test_the_input_example_matches_the_signature() -> None:
    spec = SampleSpec(shape=(3, 4, 5), outputs=7)
    inputs = model.input_example(spec)
    signature = model.model_signature(spec)
    assert inputs.shape[1:] == signature.inputs.inputs[0].shape[1:] == (3, 4, 5)
    assert inputs.dtype == signature.inputs.inputs[0].type == np.float32
    assert signature.outputs.inputs[0].shape == (-1, 7)


def test_a_model_that_cannot_be_exported_is_pickled(uri: str, tmp_path: Path) -> None:
    run = started_run(settings(tmp_path, uri, model={"name": "tests.training.tracking.own_model:Branching"}))
    run.end()
    sync([run.directory])
    mlflow.set_tracking_uri(uri)
    address = "models:/tests.training.tracking.own_model.Branching-digits/1"
    loaded = mlflow.pytorch.load_model(address)
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
