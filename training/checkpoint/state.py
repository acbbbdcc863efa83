"""The state of the model and of its optimizer, by names independent of the parameters' order and grouping.

Model tensors are named as in `state_dict()`. The optimizer's are named `key/parameter`, e.g. `exp_avg/conv1.weight`.
Hyperparameters are not saved; they come from the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.stateful import describe
from training.errors import ResumeMismatchError


class ModelState:
    """Parameters and persistent buffers of a model, whole or sharded."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> NamedTensors:
        """The live tensors by name.

        Raises:
            ValueError: the model has state that is not a tensor.
        """
        return _only_tensors(self._module.state_dict(keep_vars=True))

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """The live tensors.

        Raises:
            ResumeMismatchError: the model's tensors have other names, shapes or types.
        """
        wanted = self._module.state_dict()
        check_fits({name: value for name, value in saved.items() if name in wanted}, wanted)
        return {name: value.detach() for name, value in wanted.items()}

    def load_state_dict(self, state_dict: NamedTensors, /) -> None:
        """Load the tensors of `tensors_to_load`, by the module's own hooks."""
        load_own(self._module, state_dict)


def load_own(module: nn.Module, tensors: NamedTensors) -> None:
    """Load the state of a module of the same code.

    With it go the versions of the module's parts (`nn.Module._version`), which no file has: one of torchvision's MNASNet asks for it.

    Raises:
        RuntimeError: the module has other tensors.
    """
    state = module.state_dict()  # which has the versions in an attribute
    state.clear()
    state.update(tensors)
    module.load_state_dict(state)


class ChangedBuffers:
    """Buffers that are not persistent, and that have changed since the model was built.

    Most such buffers are caches that the model computes again. One that training changes, such as a counter, would begin anew in a
    resumed run.
    """

    def __init__(self, module: nn.Module) -> None:
        """Copies the buffers to host memory. Call it before the model computes."""
        self._module = module
        persistent = {id(value) for value in module.state_dict(keep_vars=True).values()}
        self._initial = {
            name: buffer.to("cpu", copy=True) for name, buffer in module.named_buffers() if id(buffer) not in persistent
        }

    def state_dict(self) -> NamedTensors:
        """The live tensors by name."""
        return {
            name: buffer
            for name, buffer in self._live().items()
            if describe(buffer) != describe(self._initial[name]) or not torch.equal(buffer.cpu(), self._initial[name])
        }

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """New tensors for the buffers that this rank has."""
        live = self._live()
        return {name: torch.empty_like(value, device="cpu") for name, value in saved.items() if name in live}

    def load_state_dict(self, state_dict: NamedTensors, /) -> None:
        """Load the tensors of `tensors_to_load`; one of another size, such as a cache that has grown, replaces the buffer."""
        live = self._live()
        for name, value in state_dict.items():
            if describe(live[name]) == describe(value):
                live[name].copy_(value)
            else:
                owner, _, key = name.rpartition(".")
                setattr(self._module.get_submodule(owner), key, value.to(live[name].device))

    def _live(self) -> NamedTensors:
        return {name: buffer for name, buffer in self._module.named_buffers() if name in self._initial}


class OptimizerState:
    """The optimizer's tensors per parameter, and its class."""

    def __init__(self, optimizer: Optimizer, module: nn.Module) -> None:
        self._optimizer = optimizer
        self._module = module

    def state_dict(self) -> dict[str, Any]:
        """The live tensors as `key/parameter`, and the optimizer's class name as `class`.

        Raises:
            ValueError: the optimizer has state that is not a tensor, or a parameter that is not the model's.
        """
        moments = {
            f"{key}/{name}": value
            for name, parameter in self._named_parameters()
            for key, value in self._optimizer.state.get(parameter, {}).items()
        }
        return {"class": type(self._optimizer).__name__, **_only_tensors(moments)}

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """New tensors for the parameters that this rank has, laid out in memory as the optimizer itself would have."""
        parameters = dict(self._named_parameters())
        wanted: NamedTensors = {}
        for full_name, value in saved.items():
            key, _, name = full_name.partition("/")
            if name in parameters:
                wanted[full_name] = _empty_like(parameters[name], key, value)
        return wanted

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Load the tensors of `tensors_to_load`. The optimizer keeps its hyperparameters.

        Raises:
            ResumeMismatchError: they belong to an optimizer of another class.
        """
        by_parameter = check_optimizer(state_dict, self._optimizer)
        state = {
            index: by_parameter[name]
            for index, (name, _) in enumerate(self._named_parameters())
            if name in by_parameter
        }
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})

    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The optimizer's parameters in its own order, with their names in the model; of tied ones the first."""
        live = self._module.state_dict(keep_vars=True)
        names = {id(tensor): name for name, tensor in reversed(live.items())}
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        if unknown := sum(id(parameter) not in names for parameter in parameters):
            raise ValueError(f"the optimizer has {unknown} parameters that are not the model's")
        return [(names[id(parameter)], parameter) for parameter in parameters]


def check_fits(state_dict: NamedTensors, wanted: NamedTensors) -> None:
    """Check the tensors of a checkpoint against those of the model, by name.

    Raises:
        ResumeMismatchError: they have other names, shapes or types.
    """
    for name in sorted(state_dict.keys() | wanted.keys()):
        have, want = describe(state_dict.get(name)), describe(wanted.get(name))
        if have != want:
            raise ResumeMismatchError(
                f"{name} is {have} in the checkpoint and {want} in the model",
                remedy="set model.name and model.options back, or start a new run under another run.name",
            )


def check_optimizer(state_dict: Mapping[str, Any], optimizer: Optimizer) -> dict[str, dict[str, Tensor]]:
    """The tensors of `OptimizerState.state_dict` by parameter and key.

    Raises:
        ResumeMismatchError: they belong to an optimizer of another class.
    """
    moments = dict(state_dict)
    saved, own = moments.pop("class"), type(optimizer).__name__
    if saved != own:
        raise ResumeMismatchError(
            f"it holds the optimizer state of {saved}, this run uses {own}",
            remedy="set optimizer.name back, or start a new run under another run.name",
        )
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for full_name, value in moments.items():
        key, _, name = full_name.partition("/")
        by_parameter.setdefault(name, {})[key] = value
    return by_parameter


def _only_tensors(state: dict[str, Any]) -> NamedTensors:
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"state {name} is a {type(value).__name__}; the state of model and optimizer is tensors only"
            )
    return state


def _empty_like(parameter: nn.Parameter, key: str, saved: Tensor) -> Tensor:
    """A tensor for a saved one of a parameter: sharded as it is, if it has its shape. Adam wants its step count on the CPU."""
    if key == "step" or saved.shape != parameter.shape:
        return torch.empty_like(saved, device="cpu")
    return torch.empty_like(parameter, dtype=saved.dtype, requires_grad=False)
