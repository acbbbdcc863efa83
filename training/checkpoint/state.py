"""The tensors of a run: named, copied to the host, written as safetensors, and put back.

Model tensors go by their names in `state_dict()`. The optimizer's go by `key/parameter`, e.g. `exp_avg/conv1.weight`:
names survive another order or grouping of the parameters, indices do not. Hyperparameters are not saved; the settings
say them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, TensorSpec, serialize_file
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from training.checkpoint.manifest import MODEL_FILE, OPTIMIZER_FILE
from training.checkpoint.store import FileWriter, Restored
from training.errors import ResumeMismatchError

NamedTensors = dict[str, Tensor]

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class LoadsState(Protocol):
    """What restores the state of mixed precision."""

    def load(self, state: dict[str, float | int], /) -> None:
        """Take over the state that was saved."""
        ...


def tensors_of(model: nn.Module, optimizer: Optimizer) -> dict[str, NamedTensors]:
    """The live tensors of a run by file and name. Nothing is copied.

    Raises:
        ValueError: the model or the optimizer has state that is no tensor, or the optimizer has a parameter that the
            model lacks.
    """
    state = _unwrapped(model).state_dict(keep_vars=True)
    moments = {
        f"{key}/{name}": value
        for name, parameter in _optimized(state, optimizer)
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    for name, value in (*state.items(), *moments.items()):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} of the state is a {type(value).__name__}; a checkpoint holds tensors only")
    return {MODEL_FILE: state, OPTIMIZER_FILE: moments}


def load_model(restored: Restored, model: nn.Module) -> None:
    """Put the weights and buffers of a checkpoint into a model, on whatever device it is.

    Raises:
        ResumeMismatchError: the model's tensors have other names, shapes or types; it is left as it was.
    """
    target = _unwrapped(model)
    saved = load_file(restored.path / MODEL_FILE)
    _refuse_other_tensors(restored, saved=saved, wanted=target.state_dict())
    target.load_state_dict(saved)


def load_into(restored: Restored, *, model: nn.Module, optimizer: Optimizer, precision: LoadsState) -> None:
    """Put a checkpoint into a model, its optimizer and the state of mixed precision.

    The optimizer keeps its hyperparameters: the settings, not the checkpoint, say them.

    Raises:
        ResumeMismatchError: it was made with another kind of optimizer, or with tensors of other names, shapes or
            types.
    """
    kind = type(optimizer).__name__
    if kind != restored.state.optimizer:
        raise ResumeMismatchError(
            f"the checkpoint {restored.path} holds the state of {restored.state.optimizer}, the run uses {kind}",
            remedy="set optimizer.name back, or start a new run under another run.name",
        )
    load_model(restored, model)
    _load_optimizer(load_file(restored.path / OPTIMIZER_FILE), model, optimizer)
    precision.load(restored.state.precision)


class HostCopy:
    """Copies of a run's tensors in host memory, allocated once; pinned where the tensors are on a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, NamedTensors] = {}
        self._layout = _layout({})

    @property
    def nbytes(self) -> int:
        """Size of the copies in bytes."""
        return sum(buffer.nbytes for file in self._buffers.values() for buffer in file.values())

    def allocate(self, tensors: Mapping[str, NamedTensors]) -> None:
        """Make buffers for tensors like these and touch every page, which the first copy would otherwise pay for."""
        self._buffers = {
            file: {
                # The memory format is kept: a copy that also transposes would be many times slower.
                name: torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False).zero_()
                for name, tensor in named.items()
            }
            for file, named in tensors.items()
        }
        self._layout = _layout(tensors)

    def fill(self, tensors: Mapping[str, NamedTensors]) -> None:
        """Copy the tensors; when this returns they may change. Allocates where the buffers do not fit them."""
        if _layout(tensors) != self._layout:
            self.allocate(tensors)
        sources = [tensor for named in tensors.values() for tensor in named.values()]
        buffers = [self._buffers[file][name] for file, named in tensors.items() for name in named]
        with torch.no_grad():
            # One call, not one a tensor: each call gives the GIL away, and a writer at work keeps it for up to 5 ms.
            torch._foreach_copy_(buffers, sources, non_blocking=True)
        for device in {tensor.device for tensor in sources if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def writers(self) -> dict[str, FileWriter]:
        """What writes each file. The copies must stay as they are until it has run."""
        return {file: _safetensors_writer(named) for file, named in self._buffers.items()}


def _layout(tensors: Mapping[str, NamedTensors]) -> list[tuple[str, str, torch.Size, torch.dtype]]:
    return [(file, name, t.shape, t.dtype) for file, named in tensors.items() for name, t in named.items()]


def _safetensors_writer(named: NamedTensors) -> FileWriter:
    def write(path: Path) -> None:
        packed = {name: tensor.contiguous() for name, tensor in named.items()}
        # safetensors.torch.save_file takes 30 microseconds of Python a tensor, in which the loop cannot run, to wrap it in NumPy
        # and to find tensors that share memory. These share none, and live until the file is written.
        specs = {
            name: TensorSpec(
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tensor.shape,
                data_ptr=tensor.data_ptr(),
                data_len=tensor.nbytes,
            )
            for name, tensor in packed.items()
        }
        try:
            serialize_file(specs, path)
        except SafetensorError as error:
            # The library turns the operating system's errors into text.
            if found := _OS_ERROR.search(str(error)):
                number = int(found[1])
                raise OSError(number, os.strerror(number), str(path)) from error
            raise

    return write


def _unwrapped(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _optimized(state: NamedTensors, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
    """The optimizer's parameters in its own order, with their names in the model's live state; of tied ones the first."""
    names = {id(tensor): name for name, tensor in reversed(state.items())}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if unknown := sum(id(parameter) not in names for parameter in parameters):
        raise ValueError(f"the optimizer has {unknown} parameters that are not the model's")
    return [(names[id(parameter)], parameter) for parameter in parameters]


def _refuse_other_tensors(restored: Restored, *, saved: NamedTensors, wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(saved.keys() | wanted.keys()):
        have, want = (_describe(tensors.get(name)) for tensors in (saved, wanted))
        if have != want:
            raise ResumeMismatchError(
                f"the checkpoint {restored.path} holds another model: {name} is {have} in it and {want} in the model",
                remedy="set model.name and model.options back, or start a new run under another run.name",
            )


def _describe(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _load_optimizer(saved: NamedTensors, model: nn.Module, optimizer: Optimizer) -> None:
    live: NamedTensors = _unwrapped(model).state_dict(keep_vars=True)
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for full_name, value in saved.items():
        key, _, name = full_name.partition("/")
        by_parameter.setdefault(name, {})[key] = value
    state = {
        index: {key: _like(parameter, key, value) for key, value in by_parameter[name].items()}
        for index, (name, parameter) in enumerate(_optimized(live, optimizer))
        if name in by_parameter
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _like(parameter: nn.Parameter, key: str, value: Tensor) -> Tensor:
    """A copy of a loaded tensor, laid out in memory as the optimizer itself would have."""
    if key == "step" or value.shape != parameter.shape:
        # Adam wants its step count on the CPU; the copy is because a loaded tensor is a view of the mapped file.
        return value.clone()
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
