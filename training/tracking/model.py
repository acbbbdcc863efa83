"""Registers the trained model in MLflow, with signature and input example: `python -m training.tracking.model`.

The process imports what torch.export needs, then reads a request from stdin and prints the answer (`training.tracking.registration`).
The model is stored as an exported graph (`torch.export`), MLflow's default. It loads without this repository, runs no pickled code, and
accepts any batch size. A model that cannot be exported is pickled instead. It loads where its module can be imported; the code of a run's
own is stored with it. For further training, load the run's artifact `weights/model.safetensors`.
A model of texts is stored with its vocabulary, and takes texts (`training.tracking.text_models`).
"""

from __future__ import annotations

import json
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from infra.packages.requirements import CLIENTS
from training.code import kept
from training.code.import_path import use_code
from training.data.types import SampleSpec
from training.errors import PlatformError
from training.export import ExportedModel, load_exported
from training.tracking.client import STORE_ERRORS, mlflow, summarize, upload_timeout
from training.tracking.payload import code_tags
from training.tracking.process import reserve_stdout
from training.tracking.text_models import TextInterface
from training.user_code import is_user_code, user_traceback

EXAMPLES = 2
"""Rows of the input example. torch.export specialises on a batch size of 1."""


def main() -> None:
    """Answer one request. At end of file there is nothing to register."""
    with reserve_stdout() as output:
        warm_up_export()
        text = sys.stdin.read()
        if text:
            print(json.dumps(_answer(**json.loads(text))), file=output)


def _answer(*, run_directory: str, uri: str, run_id: str, name: str) -> dict[str, str]:
    # MLflow's model API uses the tracking URI of the process, not of a client.
    mlflow.set_tracking_uri(uri)
    try:
        with upload_timeout():
            return {"version": register_model(Path(run_directory), run_id=run_id, name=name)}
    except STORE_ERRORS as error:
        return {"unavailable": summarize(error)}
    except PlatformError as error:
        return {"refused": str(error.args[0]), "remedy": error.remedy}
    except Exception as error:
        if not any(is_user_code(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
            raise
        message = f"{user_traceback(error)}the model of the run's own code can no longer be built"
        return {"refused": message, "remedy": "the weights are in the run's folder, model/model.safetensors"}


def warm_up_export() -> None:
    """Export a tiny module, which imports what torch.export needs: about two seconds."""
    _export(nn.Linear(1, 1).eval(), torch.zeros(EXAMPLES, 1))


def register_model(run_directory: Path, *, run_id: str, name: str) -> str:
    """Log a run's final model and register it as a new version. The model may be of the run's own code.

    Args:
        run_directory: the run's folder, with model/model.safetensors, model/model.json and the code that it has kept.
        run_id: the MLflow run that trained it.
        name: name of the registered model, created if it does not exist.

    Returns:
        The version; the existing one if this run has already registered the same weights.

    Raises:
        Exception: one of `client.STORE_ERRORS`: the store is unavailable or rejects a request.
        SettingsError: the model can no longer be built.
        PlatformError: the run's own code is gone or damaged.
    """
    folder = run_directory / "model"
    exported = ExportedModel.read(folder)
    digest = exported.weights_sha256
    for existing in mlflow.MlflowClient().search_model_versions(f"run_id = '{run_id}'"):
        if existing.name == name and existing.tags.get("weights_sha256") == digest:
            return str(existing.version)
    code = kept.current_folder(run_directory)
    if code is not None:
        use_code(code)
    module = load_exported(folder)
    with mlflow.start_run(run_id, log_system_metrics=False):
        logged = _log_model(module, exported.spec, code, TextInterface.find(folder, exported.spec))
    identity = kept.current_identity(run_directory)
    tags = {"weights_sha256": digest, **code_tags(None if identity is None else identity.dump())}
    version = mlflow.register_model(logged.model_uri, name, await_registration_for=0, tags=tags)
    return str(version.version)


def model_signature(spec: SampleSpec) -> mlflow.models.ModelSignature:
    """Input (n, *shape), float32 or int64 tokens, and output float32 (n, *output_shape)."""
    inputs = np.dtype(np.int64 if spec.vocabulary else np.float32)
    return mlflow.models.ModelSignature(_schema(inputs, spec.shape), _schema(np.dtype(np.float32), spec.output_shape))


def input_example(spec: SampleSpec) -> NDArray[np.float32] | NDArray[np.int64]:
    """Random input (EXAMPLES, *shape): tokens, or standard normal numbers, rounded because MLflow stores them as text."""
    generator = np.random.default_rng(0)
    if spec.vocabulary:
        return generator.integers(spec.vocabulary, size=(EXAMPLES, *spec.shape))
    return generator.standard_normal((EXAMPLES, *spec.shape)).round(2).astype(np.float32)


def _schema(dtype: np.dtype[Any], shape: tuple[int, ...]) -> mlflow.types.Schema:
    """A tensor of this shape with a batch dimension of any size."""
    return mlflow.types.Schema([mlflow.types.TensorSpec(dtype, (-1, *shape))])


def _log_model(
    module: nn.Module, spec: SampleSpec, code: Path | None, texts: TextInterface | None
) -> mlflow.models.model.ModelInfo:
    inputs = input_example(spec)
    is_exported = is_exportable(module, torch.from_numpy(inputs))
    network = {
        "pytorch_model": module,
        "signature": model_signature(spec),
        "input_example": inputs,
        "serialization_format": "pt2" if is_exported else "pickle",
        "code_paths": None if is_exported or code is None else _modules(code),
    }
    # Explicit: to infer them, MLflow would load the model in another process.
    if texts is not None:
        return texts.log(network, pip_requirements=_requirements("torch", "mlflow", "numpy", "pandas", "tokenizers"))
    return mlflow.pytorch.log_model(name="model", pip_requirements=_requirements("torch", "mlflow", "numpy"), **network)


def _requirements(*names: str) -> list[str]:
    return [f"{name}=={_public_version(name)}" for name in names]


def _modules(code: Path) -> list[str]:
    """What is at the top of a code folder, which is how MLflow puts it on the import path."""
    return sorted(str(path) for path in code.iterdir() if path.name != "__pycache__")


def is_exportable(module: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether torch.export can export the model for any batch size."""
    try:
        _export(module, inputs)
    except Exception:  # noqa: BLE001 - data-dependent control flow, unsupported calls, and what a user's own model raises there
        return False
    return True


def _export(module: nn.Module, inputs: torch.Tensor) -> None:
    torch.export.export(module, (inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def _public_version(name: str) -> str:
    """The version without its local part: package indexes have `2.15.0`, not `2.15.0+cu132`."""
    return metadata.version(CLIENTS.get(name, name)).partition("+")[0]


if __name__ == "__main__":
    main()
