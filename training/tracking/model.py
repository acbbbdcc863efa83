"""The trained model in MLflow's registry, with signature and input example.

It is stored as an exported graph (`torch.export`), MLflow's own default: it loads where this repository is not, runs no code of the
uploader while it loads, and takes any batch size. A model whose forward pass cannot be traced is pickled instead and loads where its
module can be imported. Weights to train on from are the run's artifact `weights/model.safetensors`.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.models.registry import build_model
from training.tracking.client import mlflow

EXAMPLES = 2
"""Rows of the input example. Tracing takes a batch of one for a constant."""


def warm_up() -> None:
    """Load what tracing needs, by tracing something small: about two seconds that the end of a run then does not wait for."""
    _trace(nn.Linear(1, 1).eval(), torch.zeros(EXAMPLES, 1))


def register(folder: Path, *, run_id: str, name: str) -> str:
    """Log a run's final model and make it a version of a registered model.

    Args:
        folder: the run's `model/`, with model.safetensors and model.json.
        run_id: the MLflow run it came from.
        name: name of the registered model; made where it does not exist.

    Returns:
        The version. One that this run registered earlier from the same weights is found again instead of made twice.

    Raises:
        Exception: one of `client.Unavailable`, the store is away or refuses.
        SettingsError: the model can no longer be built.
    """
    description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    digest = description["weights_sha256"]
    for known in mlflow.MlflowClient().search_model_versions(f"run_id = '{run_id}'"):
        if known.name == name and known.tags.get("weights_sha256") == digest:
            return str(known.version)
    spec = SampleSpec(shape=tuple(description["shape"]), classes=description["classes"])
    module = load(folder / "model.safetensors", ModelSettings.model_validate(description["model"]), spec)
    with mlflow.start_run(run_id, log_system_metrics=False):
        logged = _log(module, spec)
    version = mlflow.register_model(logged.model_uri, name, await_registration_for=0, tags={"weights_sha256": digest})
    return str(version.version)


def load(weights: Path, settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """The trained model on the CPU, in evaluation mode."""
    module = build_model(settings, spec)
    safetensors.torch.load_model(module, weights)
    return module.eval()


def signature(spec: SampleSpec) -> mlflow.models.ModelSignature:
    """What the model takes, float32 (n, *shape), and what it returns, logits float32 (n, classes)."""
    return mlflow.models.ModelSignature(_schema(*spec.shape), _schema(spec.classes))


def example(spec: SampleSpec) -> NDArray[np.float32]:
    """Input of the shape and range of normalised samples, (EXAMPLES, *shape); two decimals, for it is stored as text."""
    numbers = np.random.default_rng(0).standard_normal((EXAMPLES, *spec.shape))
    return numbers.round(2).astype(np.float32)


def _schema(*shape: int) -> mlflow.types.Schema:
    """Rows, any number of them, of one tensor of this shape."""
    return mlflow.types.Schema([mlflow.types.TensorSpec(np.dtype(np.float32), (-1, *shape))])


def _log(module: nn.Module, spec: SampleSpec) -> mlflow.models.model.ModelInfo:
    inputs = example(spec)
    return mlflow.pytorch.log_model(
        module,
        name="model",
        signature=signature(spec),
        input_example=inputs,
        # Named, not inferred: MLflow would load the model in another process to see what it imports.
        pip_requirements=[f"{name}=={_public_version(name)}" for name in ("torch", "mlflow", "numpy")],
        serialization_format="pt2" if is_traceable(module, torch.from_numpy(inputs)) else "pickle",
    )


def is_traceable(module: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether the model's forward pass can be kept as a graph, for any batch size."""
    try:
        _trace(module, inputs)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        # What torch.export raises for a forward pass that branches on values, or calls what it cannot follow.
        return False
    return True


def _trace(module: nn.Module, inputs: torch.Tensor) -> None:
    torch.export.export(module, (inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def _public_version(name: str) -> str:
    """The version without its local part: an index has `2.15.0`, not `2.15.0+cu132`."""
    return metadata.version(name).partition("+")[0]
