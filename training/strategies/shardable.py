"""Looks, before a model of the user's own is divided among the ranks, for what its sharded weights could not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from training.errors import SettingsError
from training.models.trial_copy import run_trial, trial_copy
from training.strategies.units import units_of

_ALTERNATIVE = "strategy.name=ddp trains it"
_BACKWARD: Final = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


def refuse_scalars(module: nn.Module, *, strategy: str, model: str) -> None:
    """Refuse weights without a dimension, of which no rank could have a part.

    Raises:
        SettingsError: there is one.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim == 0:
            raise SettingsError(
                f"strategy.name={strategy}: {name} of model.name={model} has no dimension that could be divided",
                remedy=f"give it the shape (1,); {_ALTERNATIVE}",
            )


def refuse_mixed_types(module: nn.Module, *, strategy: str, model: str) -> None:
    """Refuse trained weights of several types that would be gathered together: those of a unit, or those outside of all units.

    Raises:
        SettingsError: names the first two.
    """
    names, seen = {id(one): name for name, one in module.named_parameters()}, set[int]()
    for part in (*units_of(module), module):
        together = [one for one in part.parameters() if one.requires_grad and id(one) not in seen]
        seen.update(map(id, together))
        for one in together:
            if one.dtype != (first := together[0]).dtype:
                raise SettingsError(
                    f"strategy.name={strategy}: {names[id(one)]} of model.name={model} is of {one.dtype}, and {names[id(first)]}, which is "
                    f"gathered with it, of {first.dtype}",
                    remedy=f"keep the trained weights of a block, and those outside of blocks, in one type each; {_ALTERNATIVE}",
                )


def refuse_foreign_uses(module: nn.Module, inputs: Tensor, *, strategy: str, model: str) -> None:
    """Refuse a model that uses a weight of a unit while the unit does not compute: it is gathered for that time only.

    Refuses one that computes gradients in `forward()`, too: the weights are divided again at the end of a backward pass.

    Runs a copy of the model once, in training mode and without gradients; does nothing if it is too large for that, cannot be copied or
    fails, which the first step then reports.

    Args:
        module: the whole model, which stays as it is.
        inputs: of the model, on its device.
        strategy: name of the strategy.
        model: name of the model.

    Raises:
        SettingsError: names the first such weight.
    """
    copied = trial_copy(module)
    if copied is None:
        return
    units = units_of(copied)
    names = {id(one): name for name, one in copied.named_parameters()}
    unit_of = {id(one): unit for unit in units for one in unit.parameters()}
    with _running(units) as running, _Uses(unit_of, running) as uses:
        copied.train()
        run_trial(copied, inputs)
    if uses.differentiates:
        raise SettingsError(
            f"strategy.name={strategy}: model.name={model} computes gradients in forward(), after which the weights are not whole any more",
            remedy=f"{_ALTERNATIVE}, with communication.unused_parameters=true where no loss depends on some of the weights",
        )
    if uses.foreign:
        raise SettingsError(
            f"strategy.name={strategy}: model.name={model} uses {names[uses.foreign[0]]} outside of the block that has it, where it is not "
            "whole",
            remedy="use it in that block's forward(), and call the block instead of block.forward(), or have it outside of the model's "
            f"sequences; {_ALTERNATIVE}",
        )


def refuse_changed_weights(
    module: nn.Module, inputs: Tensor, *, strategy: str, model: str, is_divided: bool, world: int
) -> None:
    """Refuse a model whose forward pass changes its weights in a way that the ranks would lose or not agree on, or a skipped step keep.

    Runs copies of the model once, in training mode and without gradients; does nothing if it is too large for that, cannot be copied or
    fails.

    Args:
        module: the whole model, which stays as it is.
        inputs: of the model, on its device.
        strategy: name of the strategy.
        model: name of the model.
        is_divided: a rank gathers a weight for the pass, and drops what the pass has made of it; else the ranks keep what their own
            samples have made of it, which must be the same for all samples.
        world: number of ranks; one process has no peers, but steps that it skips.

    Raises:
        SettingsError: names the first such weight.
    """
    touched = _weights_after(module, inputs)
    if not touched:
        return
    # Of each sample alone, in as many rows: an embedding with max_norm changes the rows that a batch uses.
    each = [] if is_divided else [_weights_after(module, one.expand_as(inputs).contiguous()) for one in inputs.unbind()]
    if is_divided:
        why, way = "which the ranks would lose", "set strategy.name=ddp, which keeps such changes"
    elif world == 1:
        why, way = (
            "to other values for other samples, which a step that is skipped would keep",
            "set loop.nonfinite=stop, without fp16",
        )
    else:
        why, way = "to other values for other samples, so the ranks would differ", "train with scale.workers=1"
    for name, (changed, _) in touched.items():
        values = [one[name][1] for one in each if name in one]
        if changed and (is_divided or any(not torch.equal(one, values[0]) for one in values)):
            setting = f"strategy.name={strategy}" if world > 1 else "loop.nonfinite=skip or precision.mode=fp16"
            raise SettingsError(
                f"{setting}: model.name={model} changes its weight {name} in forward(), {why}",
                remedy=f"keep what forward() changes in a buffer; or {way}",
            )


def _weights_after(module: nn.Module, inputs: Tensor) -> dict[str, tuple[bool, Tensor]]:
    """Whether a pass in training mode has written to each weight, by name, and what it is then; nothing if there is no such pass."""
    copied = trial_copy(module)
    if copied is None:
        return {}
    before = {name: (one, one._version, one.data_ptr()) for name, one in copied.named_parameters()}  # noqa: SLF001
    copied.train()
    if not run_trial(copied, inputs):
        return {}
    known = dict(module.named_parameters())
    return {
        name: (
            (one._version, one.data_ptr()) != (version, place) or not torch.equal(one, known[name]),  # noqa: SLF001
            one.detach(),
        )
        for name, (one, version, place) in before.items()
    }


@contextmanager
def _running(units: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """The units that compute at the moment, the innermost last."""
    running: list[nn.Module] = []
    with ExitStack() as stack:
        for unit in units:
            stack.callback(unit.register_forward_pre_hook(lambda part, _: running.append(part)).remove)
            stack.callback(unit.register_forward_hook(lambda *_: (running.pop(), None)[1]).remove)
        yield running


class _Uses(TorchFunctionMode):
    """Collects the weights of units that functions of torch compute with while their unit does not run.

    Attributes:
        foreign: the identity of each, in order of use.
        differentiates: gradients were computed.
    """

    def __init__(self, unit_of: dict[int, nn.Module], running: list[nn.Module]) -> None:
        super().__init__()
        self.foreign: list[int] = []
        self.differentiates = False
        self._unit_of = unit_of
        self._running = running

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of the function
        """The function's result."""
        del types
        self.differentiates |= func in _BACKWARD
        result = func(*args, **(kwargs or {}))
        if any(isinstance(one, Tensor) for one in tree_leaves(result)):  # not of its shape or device
            for one in tree_leaves((args, kwargs)):
                if (unit := self._unit_of.get(id(one))) is not None and unit not in self._running:
                    self.foreign.append(id(one))
        return result
