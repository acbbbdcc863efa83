"""What a model of the user's own needs before it is trained, or is refused for: one output, and a state that can be saved and restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.factories import is_import_path
from training.models.trial_copy import device_of, run_trial, trial_copy

_LOGITS = "logits"
"""What transformers' models call their scores."""

_ROWS = 2
"""Samples of a trial; batch norm needs two."""


class SelectedOutput:
    """A forward hook that replaces what a model returns by one tensor of it.

    It removes itself from a model that returns a tensor, in training and in evaluation: some have auxiliary outputs in training only.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._key = settings.output
        self._name = settings.name
        self._plain_modes = set[bool]()

    def __call__(self, module: nn.Module, inputs: object, outputs: object) -> Tensor | None:
        """The tensor, None for the outputs as they are.

        Raises:
            SettingsError: there is no such tensor among the outputs.
        """
        del inputs
        if isinstance(outputs, Tensor) and self._key is None:
            self._plain_modes.add(module.training)
            if len(self._plain_modes) == len((True, False)):
                _remove(self, module)  # an exported model then needs none of this code
            return None
        choices = _choices(outputs)
        key = self._key if self._key is not None else _default(choices)
        if key is None or str(key) not in choices:
            asked = "" if self._key is None else f", and model.output={self._key}"
            raise SettingsError(
                f"model.name={self._name} returns {_described(outputs)}{'' if choices else ', in which no tensor is found'}{asked}",
                remedy=f"set model.output to one of {', '.join(choices)}, or return a tensor"
                if choices
                else "return a tensor, or a mapping or tuple with one",
            )
        return choices[str(key)]


def prepare_own_model(module: nn.Module, settings: ModelSettings, spec: SampleSpec) -> None:
    """Run a model once, which also makes its lazy parameters, have it return one tensor, and see that its state can be saved.

    Does nothing to a built-in model.
    Buffers that are views or expanded get memory of their own: no file can hold them, and nothing can be loaded into them. A model that
    does not take zeros is not run.

    Args:
        module: the model, in training mode afterwards; the random generators stay as they are.
        settings: its name, and which output.
        spec: the samples that it was built for.

    Raises:
        SettingsError: it is scripted, replaces a parameter, or there is no tensor among the outputs; or a part of the state cannot be saved
            or restored: a parameter that shares a part of its memory with another, one that is no tensor, or one that training makes.
    """
    if not is_import_path(settings.name):
        return
    _refuse_scripted(module, settings.name)
    selects = SelectedOutput(settings)
    module.register_forward_hook(selects)
    _refuse_complex(module, settings.name)
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        module.eval()
        _run(module, spec)  # makes them
        _refuse_lazy(module, settings.name)
    _own_memory(module, settings.name)
    state = _shapes(module, settings.name)
    trial = trial_copy(module)
    if trial is not None:  # whose state may depend on the first batch, which zeros are not
        weights = dict(trial.named_parameters())
        for mode in (False, True):
            trial.train(mode)  # which a user's own may not return
            _run(trial, spec)
        _refuse_replaced(trial, weights, settings.name)
        if not any(isinstance(one, SelectedOutput) for one in trial._forward_hooks.values()):  # noqa: SLF001 - see `_remove`
            _remove(selects, module)
        if made := sorted(set(_shapes(trial, settings.name).items()) ^ set(state.items())):
            raise _unsaved(
                settings.name,
                made[0][0],
                "changes with the first batch",
                "register it in __init__, with its final shape",
            )
    module.train()


def _refuse_replaced(trial: nn.Module, weights: Mapping[str, nn.Parameter], model: str) -> None:
    for name, one in trial.named_parameters():
        if weights.get(name, one) is not one:
            raise SettingsError(
                f"model.name={model} replaces its parameter {name} in train() or forward(), and the optimizer would have the old one",
                remedy="change it in place, under torch.no_grad(), or compute what is used instead of it in forward()",
            )


def _refuse_scripted(module: nn.Module, model: str) -> None:
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise SettingsError(
                f"{f'{name} of ' if name else ''}model.name={model} is a torch.jit.ScriptModule, which cannot be distributed",
                remedy="use the nn.Module that it was made of; compute.compile=default compiles it",
            )


def _refuse_complex(module: nn.Module, model: str) -> None:
    for name, parameter in module.named_parameters():
        if parameter.is_complex():
            raise SettingsError(
                f"model.name={model}: {name} has the type {parameter.dtype}, which the fused optimizers do not take",
                remedy="keep its real and imaginary parts in a parameter of real numbers (torch.view_as_complex)",
            )


def _refuse_lazy(module: nn.Module, model: str) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise _unsaved(
                model, name, "is made by the first batch, and the model takes no batch of zeros", "make it in __init__"
            )


def _run(module: nn.Module, spec: SampleSpec) -> None:
    """A forward pass of samples of zeros.

    Raises:
        SettingsError: see `SelectedOutput`.
    """
    dtype = torch.int64 if spec.vocabulary else torch.float32
    run_trial(module, torch.zeros((_ROWS, *spec.shape), dtype=dtype, device=device_of(module)))


def _own_memory(module: nn.Module, model: str) -> None:
    """Replace buffers that do not have their memory to themselves, and refuse such parameters and sparse tensors."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.layout != torch.strided:
            raise _unsaved(
                model,
                name,
                "is a sparse tensor",
                "keep its indices and values in buffers, and make it of them in forward()",
            )
    users = Counter(one.untyped_storage().data_ptr() for one in module.parameters() if one.numel())
    for name, parameter in module.named_parameters():
        if users[parameter.untyped_storage().data_ptr()] > 1:
            raise _unsaved(model, name, "shares memory with another parameter", "use one parameter in both places")
        if not _is_whole(parameter):
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    cloned: dict[int, Tensor] = {}
    for path, part in module.named_modules():
        for key, buffer in part.named_buffers(recurse=False):
            if buffer.numel() and users[buffer.untyped_storage().data_ptr()]:
                raise _unsaved(
                    model, f"{path}.{key}".lstrip("."), "shares memory with a parameter", "compute it in forward()"
                )
            if not _is_whole(buffer):
                part._buffers[key] = cloned.setdefault(id(buffer), buffer.clone(memory_format=torch.contiguous_format))  # noqa: SLF001


def _is_whole(tensor: Tensor) -> bool:
    """Whether a tensor has all of its storage, each number once."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _shapes(module: nn.Module, model: str) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of the state."""
    shapes, state = {}, module.state_dict()
    if lost := [name for name, _ in module.named_parameters() if name not in state]:
        raise _unsaved(
            model, lost[0], "is not in its state_dict()", "let state_dict() return everything, as nn.Module's does"
        )
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise _unsaved(model, name, "is no tensor", "keep it in a buffer")
        try:
            safetensors.torch.save({name: torch.empty(0, dtype=value.dtype)})
        except (KeyError, SafetensorError) as error:
            raise _unsaved(
                model, name, f"has the type {value.dtype}", "keep it in numbers that safetensors has"
            ) from error
        shapes[name] = tuple(value.shape)
    return shapes


def _unsaved(model: str, name: str, why: str, remedy: str) -> SettingsError:
    return SettingsError(f"model.name={model}: {name} {why}, and can be neither saved nor restored", remedy=remedy)


def _choices(outputs: object) -> dict[str, Tensor]:
    """The tensors among what a model returned, by key or index."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(outputs, Mapping):
        items = outputs.items()
    elif isinstance(outputs, Sequence) and not isinstance(outputs, str):
        items = enumerate(outputs)
    return {str(key): value for key, value in items if isinstance(value, Tensor)}


def _default(choices: Mapping[str, Tensor]) -> str | None:
    """The logits, or the first tensor that has a dimension: a loss that the model computes has none."""
    return _LOGITS if _LOGITS in choices else next((key for key, one in choices.items() if one.ndim), None)


def _described(outputs: object) -> str:
    kind = type(outputs).__name__
    if isinstance(outputs, Mapping):
        return f"a {kind} with {', '.join(map(str, outputs)) or 'nothing'}"
    return f"a {kind} of {len(outputs)}" if isinstance(outputs, Sequence) else f"a {kind}"


def _remove(hook: SelectedOutput, module: nn.Module) -> None:
    for key, one in list(module._forward_hooks.items()):  # noqa: SLF001 - a handle would belong to the model that a copy was made of
        if one is hook:
            del module._forward_hooks[key]  # noqa: SLF001
