"""Hooks of a user's own model that change gradients: those of a rank see its part of a step, and not the gradient of the step.

So a strategy trains what one process does if a hook of a weight is linear, such as a mask, and if the backward pass of twice the loss gives
twice the gradients: under most strategies a rank starts from a multiple of its share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn

from training.errors import SettingsError
from training.models.trial_copy import drawing_on, trial_copy
from training.recomputation import kept_state

Hook = Callable[[Tensor], Tensor | None]

_MAGNITUDES: Final = tuple(10.0**exponent for exponent in range(-8, 5))
"""Of the gradients that a hook is tried with: one that clamps is linear below its limit."""

_FACTOR: Final = 2.0**20
"""Of a loss, to the same end; multiplying by a power of two does not round."""

_REMEDY: Final = "clip the whole gradient with loop.clip_norm instead, or train with scale.workers=1"


def refuse_nonlinear_hooks(module: nn.Module, *, model: str, has_parts: bool) -> None:
    """Refuse hooks of weights whose result for a sum of gradients is not the sum of their results.

    Calls every `Tensor.register_hook` of a weight with numbers of its own; buffers and attributes of the model stay as they are.

    Args:
        module: the whole model, before it is distributed.
        model: its name in the settings.
        has_parts: the ranks will have parts of the weights, which the weights of now are not then.

    Raises:
        SettingsError: names the first such weight, or the first with a hook after its gradient is accumulated.
    """
    weights = {id(one) for one in module.parameters()}
    for name, weight in module.named_parameters():
        if has_parts and any(id(one) in weights for hook in hooks_of(weight).values() for one in _closed_over(hook)):
            raise SettingsError(
                f"{name} of model.name={model} has a hook (register_hook) that refers to a weight, of which each rank will have a part",
                remedy="look the weight up in its module whenever the hook is called; or set strategy.name=ddp",
            )
        if weight._post_accumulate_grad_hooks:  # noqa: SLF001 - torch has no public way
            raise SettingsError(
                f"{name} of model.name={model} has a hook of register_post_accumulate_grad_hook, which would see the gradient of one rank "
                "before those of the others are added",
                remedy=_REMEDY,
            )
        if hooks_of(weight) and not _is_linear(module, weight):
            raise SettingsError(
                f"{name} of model.name={model} has a hook (register_hook) that is not linear, so that what it does to the gradients of the "
                "ranks is not what it does to their sum",
                remedy=f"{_REMEDY}; masks and factors work",
            )


def refuse_nonlinear_gradients(module: nn.Module, inputs: Tensor, *, model: str) -> None:
    """Refuse a model whose gradients are not proportional to the loss, as where a module's backward hook clamps them.

    Does nothing if the model is too large for a copy, cannot be copied or fails on the inputs, which the first step then reports.

    Args:
        module: the whole model, which stays as it is.
        inputs: of the model, on its device.
        model: its name in the settings.

    Raises:
        SettingsError: names the first weight with another gradient.
    """
    copied = trial_copy(module)
    if copied is None:
        return
    with drawing_on(inputs.device):
        try:
            copied.train()
            outputs = cast("Tensor", copied(inputs))
            once = _gradients(copied, outputs, factor=1.0)
            scaled = _gradients(copied, outputs, factor=_FACTOR)
        except Exception:  # noqa: BLE001 - of a user's own code
            return
    for name, gradient in once.items():
        expected, found = gradient.float() * _FACTOR, scaled[name].float()
        if (found - expected).norm() > 1e-3 * expected.norm():  # not so for numbers that are not finite
            raise SettingsError(
                f"the gradient of {name} of model.name={model} is not proportional to the loss, which is divided by "
                "loop.accumulation, and multiplied by the number of ranks or precision.initial_scale",
                remedy="a hook or function within the model that clamps, normalizes or adds gradients acts otherwise then: "
                f"{_REMEDY}, loop.accumulation=1 and another precision.mode than fp16",
            )


def hooks_of(weight: nn.Parameter) -> Mapping[int, Hook]:
    """The hooks on the gradient of a weight: live, without those that are removed."""
    return cast("Mapping[int, Hook] | None", weight._backward_hooks) or {}  # noqa: SLF001 - torch has no public way


def apply_hooks(hooks: Mapping[int, Hook], gradient: Tensor) -> Tensor:
    """What hooks make of a gradient, in its own type."""
    for hook in list(hooks.values()):
        changed = hook(gradient)
        gradient = gradient if changed is None else changed.to(gradient.dtype)
    return gradient


def _closed_over(hook: Hook) -> Iterable[object]:
    return (cell.cell_contents for cell in getattr(hook, "__closure__", None) or ())


def _is_linear(module: nn.Module, weight: nn.Parameter) -> bool:
    """Whether the hooks of a weight are, each time from the state that the module has now."""
    generator = torch.Generator(weight.device).manual_seed(0)
    kept = kept_state(module)

    def apply(gradient: Tensor) -> Tensor:
        with kept:
            return apply_hooks(hooks_of(weight), gradient.clone())

    with torch.no_grad(), drawing_on(weight.device):
        drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device)
        # Most hooks treat every number by itself: one call tries all magnitudes. One that does not is tried with each.
        cycle = torch.tensor(_MAGNITUDES, dtype=weight.dtype, device=weight.device)
        mixed = cycle.repeat(-(-drawn.numel() // len(cycle)))[: drawn.numel()].view(drawn.shape)
        if all(_adds_up(apply, drawn * one, -2 * one * drawn, one) for one in (mixed, cycle[0])):
            return True
        others = (drawn.flip(list(range(drawn.ndim))), -2 * drawn)
        return all(_adds_up(apply, drawn * one, other * one, one) for one in cycle for other in others)


def _adds_up(apply: Callable[[Tensor], Tensor], first: Tensor, other: Tensor, magnitude: Tensor) -> bool:
    """Whether a function of gradients does for two of them, to the precision of each number's magnitude."""
    together, expected = apply(first + other), apply(first) + apply(other)
    return bool(((together - expected).abs_() <= expected.abs_().mul_(1e-3).add_(1e-5 * magnitude)).all())


def _gradients(module: nn.Module, outputs: Tensor, *, factor: float) -> dict[str, Tensor]:
    module.zero_grad()
    outputs.backward(outputs.detach() * factor, retain_graph=True)  # type: ignore[no-untyped-call]
    return {name: one.grad for name, one in module.named_parameters() if one.grad is not None}


def attach_hooks(weights: Iterable[tuple[str, nn.Parameter]], hooks: Mapping[str, Mapping[int, Hook]]) -> None:
    """Let weights of a strategy's own run the hooks of those that they stand for, by name."""
    for name, weight in weights:
        if name in hooks:
            weight.register_hook(partial(apply_hooks, hooks[name]))  # type: ignore[no-untyped-call]
