"""A model's weights as one number, as a file, and as a folder that a model can be built from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import CheckpointError
from training.models.own import prepare_own_model
from training.models.registry import build_model

_WEIGHTS = "model.safetensors"
_DESCRIPTION = "model.json"


def weights_sha256(module: nn.Module) -> str:
    """Returns the sha256, in hex, of the module's parameters and persistent buffers.

    Two modules have the same hash if and only if their state dictionaries have the same names, dtypes, shapes and bytes; the
    order of the names and the device do not matter. The module is the bare one, not a DDP wrapper.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def save_safetensors(module: nn.Module, path: Path, metadata: Mapping[str, str]) -> None:
    """Writes the module's parameters and persistent buffers to a safetensors file, completely or not at all.

    safetensors writes a temporary file and renames it. Weights that share memory are written once, and
    `safetensors.torch.load_model` restores both names.

    Args:
        module: the bare module, not a DDP wrapper.
        path: file to write or replace, in a folder that exists.
        metadata: metadata of the file's header.

    Raises:
        CheckpointError: the file could not be written.
    """
    try:
        safetensors.torch.save_model(module, str(path), metadata=dict(metadata))
    except SafetensorError as error:
        raise CheckpointError(
            f"the weights could not be written to {path}: {error}",
            remedy="free disk space or make the folder writable; the newest checkpoint has the weights too",
        ) from error


def keep_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files of a dataset (`DataBundle.files`), each completely or not at all, and creates the folder if there are any.

    Raises:
        CheckpointError: one could not be written.
    """
    try:
        for name, content in files.items():
            folder.mkdir(exist_ok=True)
            partial = folder / f".{name}.partial"
            partial.write_bytes(content)
            partial.replace(folder / name)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or folder} could not be written: {error.strerror}",
            remedy="free disk space or make the folder writable, and resume the run",
        ) from error


def export_model(
    module: nn.Module, folder: Path, settings: ModelSettings, spec: SampleSpec, *, files: Mapping[str, bytes]
) -> str:
    """Writes the final weights and what is needed to build the model around them and to use it; returns their hash.

    Args:
        module: the bare module, not a DDP wrapper.
        folder: the folder of the exported model, created if it does not exist.
        settings: the model.
        spec: the samples that it was built for.
        files: of the dataset, see `DataBundle.files`.

    Raises:
        CheckpointError: a file could not be written.
    """
    folder.mkdir(exist_ok=True)
    keep_files(files, folder)
    digest = weights_sha256(module)
    save_safetensors(module, folder / _WEIGHTS, {"sha256": digest})
    description = {
        "model": settings.model_dump(mode="json"),
        "samples": asdict(spec),
        "weights_sha256": digest,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")
    return digest


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """What `export_model` has written beside the weights.

    Attributes:
        settings: the model.
        spec: the samples that it was built for.
        weights_sha256: hash of the weights.
    """

    settings: ModelSettings
    spec: SampleSpec
    weights_sha256: str

    @classmethod
    def read(cls, folder: Path) -> ExportedModel:
        """From the folder of `export_model`."""
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        samples = description["samples"]
        return cls(
            settings=ModelSettings.model_validate(description["model"]),
            spec=SampleSpec(**{**samples, "shape": tuple(samples["shape"])}),
            weights_sha256=description["weights_sha256"],
        )


def load_exported(folder: Path) -> nn.Module:
    """The model that `export_model` has written, on the CPU, in evaluation mode; code of the user's own must be importable."""
    exported = ExportedModel.read(folder)
    return load_trained_model(folder / _WEIGHTS, exported.settings, exported.spec)


def load_trained_model(weights: Path, settings: ModelSettings, spec: SampleSpec) -> nn.Module:
    """A model with the weights of a safetensors file, on the CPU, in evaluation mode."""
    module = build_model(settings, spec)
    prepare_own_model(module, settings, spec)
    safetensors.torch.load_model(module, weights)
    return module.eval()
