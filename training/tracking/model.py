"""Registers the trained model in MLflow, with signature and input example: `python -m training.tracking.model`.

The process imports what torch.export needs, then reads a request from stdin and prints the answer (`training.tracking.registration`).
The model is stored as an exported graph (`torch.export`), MLflow's default. It loads without this repository, runs no pickled code, and
accepts any batch size. A model that cannot be exported is pickled instead, and loads only where its module can be imported. For further
training, load the run's artifact `weights/model.safetensors`.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import PlatformError
from training.models.registry import build_model
from training.tracking.client import STORE_ERRORS, mlflow, summarize, upload_timeout
from training.tracking.process import reserve_stdout

EXAMPLES = 2
"""Rows of the input example. torch.export specialises on a batch size of 1."""


def main() -> None:
    """Answer one request. At end of file there is nothing to register."""
    with reserve_stdout() as output:
        warm_up_export()
        text = sys.stdin.read()
        if text:
            print(json.dumps(_answer(**json.loads(text))), file=output)


def _answer(*, folder: str, uri: str, run_id: str, name: str) -> dict[str, str]:
    # MLflow's model API uses the tracking URI of the process, not of a client.
    mlflow.set_tracking_uri(uri)
    try:
        with upload_timeout():
            return {"version": register_model(Path(folder), run_id=run_id, name=name)}
    except STORE_ERRORS as error:
        return {"unavailable": summarize(error)}
    except PlatformError as error:
        return {"refused": str(error.args[0]), "remedy": error.remedy}


def warm_up_export() -> None:
    """Export a tiny module, which imports what torch.export needs: about two seconds."""
    _export(nn.Linear(1, 1).eval(), torch.zeros(EXAMPLES, 1))


def register_model(folder: Path, *, run_id: str, name: str) -> str:
    """Log a run's final model and register it as a new version.

    Args:
        folder: the run's `model/`, with model.safetensors and model.json.
        run_id: the MLflow run that trained it.
        name: name of the registered model, created if it does not exist.

    Returns:
        The version; the existing one if this run has already registered the same weights.

    Raises:
        Exception: one of `client.STORE_ERRORS`: the store is unavailable or rejects a request.
        SettingsError: the model can no longer be built.
    """
    description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    digest = description["weights_sha256"]
    for existing in mlflow.MlflowClient().search_model_versions(f"run_id = '{run_id}'"):
        if existing.name == name and existing.tags.get("weights_sha256") == digest:
            return str(existing.version)
    spec = SampleSpec(shape=tuple(description["shape"]), classes=description["classes"])
    module = load_trained_model(folder / "model.safetensors", ModelSettings.model_validate(description["model"]), spec)
    with mlflow.start_run(run_id, log_system_metrics=False):
        logged = _log_model(module, spec)
    version = mlflow.register_model(logged.model_uri, name, await_registration_for=0, tags={"weights_sha256": digest})
    return str(version.version)


def load_trained_model(weights: Path, settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """The trained model on the CPU, in evaluation mode."""
    module = build_model(settings, spec)
    safetensors.torch.load_model(module, weights)
    return module.eval()


def model_signature(spec: SampleSpec) -> mlflow.models.ModelSignature:
    """Input float32 (n, *shape) and output logits float32 (n, classes)."""
    return mlflow.models.ModelSignature(_schema(*spec.shape), _schema(spec.classes))


def input_example(spec: SampleSpec) -> NDArray[np.float32]:
    """Standard normal input (EXAMPLES, *shape), rounded to two decimals because MLflow stores it as text."""
    numbers = np.random.default_rng(0).standard_normal((EXAMPLES, *spec.shape))
    return numbers.round(2).astype(np.float32)


def _schema(*shape: int) -> mlflow.types.Schema:
    """A tensor of this shape with a batch dimension of any size."""
    return mlflow.types.Schema([mlflow.types.TensorSpec(np.dtype(np.float32), (-1, *shape))])


def _log_model(module: nn.Module, spec: SampleSpec) -> mlflow.models.model.ModelInfo:
    inputs = input_example(spec)
    return mlflow.pytorch.log_model(
        module,
        name="model",
        signature=model_signature(spec),
        input_example=inputs,
        # Explicit: to infer them, MLflow would load the model in another process.
        pip_requirements=[f"{name}=={_public_version(name)}" for name in ("torch", "mlflow", "numpy")],
        serialization_format="pt2" if is_exportable(module, torch.from_numpy(inputs)) else "pickle",
    )


def is_exportable(module: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether torch.export can export the model for any batch size."""
    try:
        _export(module, inputs)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        # Errors of torch.export for data-dependent control flow and unsupported calls.
        return False
    return True


def _export(module: nn.Module, inputs: torch.Tensor) -> None:
    torch.export.export(module, (inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def _public_version(name: str) -> str:
    """The version without its local part: package indexes have `2.15.0`, not `2.15.0+cu132`."""
    return metadata.version(name).partition("+")[0]


if __name__ == "__main__":
    main()
