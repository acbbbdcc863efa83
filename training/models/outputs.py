"""The outputs of a model of the user's own: the one tensor among them that the objective gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import SettingsError

_LOGITS = "logits"
"""What transformers' models call their scores."""

_ROWS = 2
"""Samples of a trial; batch norm needs two."""


class SelectedOutput:
    """A forward hook that replaces what a model returns by one tensor of it; it leaves a model that returns a tensor alone."""

    def __init__(self, settings: ModelSettings) -> None:
        self._key = settings.output
        self._name = settings.name

    def __call__(self, module: nn.Module, inputs: object, outputs: object) -> Tensor | None:
        """The tensor, None for the outputs as they are.

        Raises:
            SettingsError: there is no such tensor among the outputs.
        """
        del inputs
        if isinstance(outputs, Tensor) and self._key is None:
            _remove(self, module)  # an exported model then needs none of this code
            return None
        choices = _choices(outputs)
        key = self._key if self._key is not None else _default(choices)
        if key is None or str(key) not in choices:
            asked = "" if self._key is None else f", and model.output={self._key}"
            raise SettingsError(
                f"model.name={self._name} returns {_described(outputs)}{asked}",
                remedy=f"set model.output to one of {', '.join(choices)}, or return a tensor"
                if choices
                else "return a tensor, or a mapping or tuple with one",
            )
        return choices[str(key)]


def select_output(module: nn.Module, settings: ModelSettings, spec: SampleSpec) -> None:
    """Have a model of the user's own return one tensor, whatever it returns, and run it once, which also makes its lazy parameters.

    Args:
        module: the model, in evaluation mode meanwhile; the random generators stay as they are.
        settings: its name, and which output.
        spec: the samples that it was built for.

    Raises:
        SettingsError: there is no such tensor among the outputs.
    """
    hook = SelectedOutput(settings)
    module.register_forward_hook(hook)
    device = next((one.device for one in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    was_training = module.training
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        shape = (_ROWS, *spec.shape)
        inputs = torch.zeros(shape, dtype=torch.int64 if spec.vocabulary else torch.float32)
        module.eval()(inputs.to(device))
    module.train(was_training)


def _choices(outputs: object) -> dict[str, Tensor]:
    """The tensors among what a model returned, by key or index."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(outputs, Mapping):
        items = outputs.items()
    elif isinstance(outputs, Sequence) and not isinstance(outputs, str):
        items = enumerate(outputs)
    return {str(key): value for key, value in items if isinstance(value, Tensor)}


def _default(choices: Mapping[str, Tensor]) -> str | None:
    return _LOGITS if _LOGITS in choices else next(iter(choices), None)


def _described(outputs: object) -> str:
    kind = type(outputs).__name__
    if isinstance(outputs, Mapping):
        return f"a {kind} with {', '.join(map(str, outputs)) or 'nothing'}"
    return f"a {kind} of {len(outputs)}" if isinstance(outputs, Sequence) else f"a {kind}"


def _remove(hook: SelectedOutput, module: nn.Module) -> None:
    for key, one in list(module._forward_hooks.items()):  # noqa: SLF001 - a handle would belong to the model that a copy was made of
        if one is hook:
            del module._forward_hooks[key]  # noqa: SLF001
