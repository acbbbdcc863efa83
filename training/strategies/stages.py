"""The stages of a pipeline: consecutive parts of a model (`training.models.parts`), with about equal numbers of parameters.

A rank keeps the model's structure, and of its parameters and buffers those of its own stages: they have the names of the whole
model, in checkpoints too. Parameters that parts of several stages share, such as a language model's embedding and head, are on each of
their ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from torch import Tensor, nn

from training.errors import SettingsError
from training.models.parts import Part, parts_of
from training.models.trial_copy import copy_of, drawing_on
from training.seeding import seed_step

MOST_COMPARED = 10**9
_TOLERANCE = 1e-3
"""Relative difference, in the L2 norm, by which equal computations may differ on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive parts of a model.

    Attributes:
        parts: first to last.
        tensors: identities of the parameters and buffers that they use.
        parameters: their number of parameters.
    """

    parts: tuple[Part, ...]
    tensors: frozenset[int]
    parameters: int


class StageModule(nn.Module):
    """Computes one stage; `model` is registered for its buffers and parameters."""

    def __init__(self, stage: Stage, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._parts = stage.parts

    def forward(self, inputs: Tensor) -> Tensor:
        """The output of the stage's last part, in the memory order in which it can be sent."""
        for part in self._parts:
            inputs = part.forward(inputs)
        return inputs.contiguous()


def divide(module: nn.Module, count: int, *, model: str) -> list[Stage]:
    """Divide a model into stages so that the largest has as few parameters as possible.

    Args:
        module: the whole model.
        count: number of stages.
        model: its name in the settings.

    Raises:
        SettingsError: the model has no parts or fewer than stages, or a parameter belongs to no part.
    """
    tensors = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
    sizes = {id(one): one.numel() for one in module.parameters()}
    blocks = _with_parameters([_stage((part,), tensors, sizes) for part in parts_of(module)])
    if not blocks:
        raise SettingsError(
            f"strategy.name=pipeline: model.name={model} has no parts to divide into stages",
            remedy="make it an nn.Sequential, give it a method parts() (training.models.parts), or set strategy.name=fsdp2",
        )
    if left := sorted(name for name, one in tensors.items() if not any(id(one) in block.tensors for block in blocks)):
        raise SettingsError(
            f"strategy.name=pipeline: parts() of model.name={model} leaves out {', '.join(left)}",
            remedy="name every parameter and buffer in the part that uses it",
        )
    if count > len(blocks):
        raise SettingsError(
            f"strategy.name=pipeline: {count} stages of model.name={model}, which has {len(blocks)} parts with parameters",
            remedy=f"use at most {len(blocks)} stages (strategy.stages x strategy.stages_per_rank)",
        )
    return [_joined(blocks[one.start : one.stop], sizes) for one in balanced([it.parameters for it in blocks], count)]


def check_parts(module: nn.Module, inputs: Tensor, *, model: str) -> None:
    """Compare the parts of a model with the whole on a batch: its outputs, and the gradients of the sum of their squares.

    A model of over `MOST_COMPARED` parameters is not compared: its copies may not fit beside it. Nor is one without parts.

    Args:
        module: the whole model, which stays as it is.
        inputs: of the model, on its device; two samples or more.
        model: its name in the settings.

    Raises:
        SettingsError: one after the other they compute something else, so that a pipeline would train another model.
    """
    if not parts_of(module) or sum(one.numel() for one in module.parameters()) > MOST_COMPARED:
        return
    whole = _computed(module, inputs, lambda copied: copied)
    divided = _computed(module, inputs, _composed)
    for name in dict.fromkeys([*whole, *divided]):
        if not _are_close(whole.get(name), divided.get(name)):
            raise SettingsError(
                f"strategy.name=pipeline: the parts of model.name={model} compute something else than the model: the {name} differ",
                remedy="parts() has to name every layer in the order of forward(), and each use of one that is used twice; or set "
                "strategy.name=fsdp2",
            )


def keep_only(module: nn.Module, stages: Sequence[Stage]) -> None:
    """Remove every parameter and buffer that the stages do not use from a model, in place.

    A layer that loses all of them is replaced: batch norm without its statistics could not load a state. A part that uses it, because
    it does not name it, is refused.
    """
    _keep(module, frozenset[int]().union(*(stage.tensors for stage in stages)))


def balanced(sizes: Sequence[int], groups: int) -> list[range]:
    """Divide a sequence into so many consecutive groups that the largest sum is smallest; of equal divisions the first."""

    @cache
    def best(first: int, groups: int) -> tuple[int, tuple[int, ...]]:
        """The largest sum of the groups from `first` on, and where each ends."""
        if groups == 1:
            return sum(sizes[first:]), (len(sizes),)
        rest = ((end, best(end, groups - 1)) for end in range(first + 1, len(sizes) - groups + 2))
        return min((max(sum(sizes[first:end]), largest), (end, *ends)) for end, (largest, ends) in rest)

    _, ends = best(0, groups)
    return [range(start, end) for start, end in pairwise((0, *ends))]


def _are_close(value: Tensor | None, other: Tensor | None) -> bool:
    if value is None or other is None or value.shape != other.shape:
        return False
    return bool((value - other).norm() <= _TOLERANCE * value.norm())


def _composed(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The parts of a model, one after the other."""

    def forward(inputs: Tensor) -> Tensor:
        for part in parts_of(module):
            inputs = part.forward(inputs)
        return inputs

    return forward


def _computed(
    module: nn.Module, inputs: Tensor, forward_of: Callable[[nn.Module], Callable[[Tensor], Tensor]]
) -> dict[str, Tensor]:
    """The outputs of a copy of a model, and the gradients of its parameters, by what they are; with the same random numbers each time."""
    copied = copy_of(module)
    with drawing_on(inputs.device):
        seed_step(0, 0, 0, 0)
        outputs = forward_of(copied)(inputs)
        outputs.float().square().sum().backward()  # type: ignore[no-untyped-call]
    gradients = {f"gradients of {name}": one.grad for name, one in copied.named_parameters()}
    return {"outputs": outputs.detach(), **{name: one for name, one in gradients.items() if one is not None}}


class _Elsewhere(nn.Module):
    """In place of a layer that other ranks have."""

    def __init__(self, name: str, layer: nn.Module) -> None:
        super().__init__()
        self._name = name
        self._had = {*layer._parameters, *layer._buffers, *layer._modules}  # noqa: SLF001 - those that are None, too

    def forward(self, *_: object, **__: object) -> Tensor:
        """Refuse to compute."""
        raise self._refusal()

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        if name in self.__dict__.get("_had", ()):
            raise self._refusal()
        return super().__getattr__(name)

    def _refusal(self) -> SettingsError:
        return SettingsError(
            f"strategy.name=pipeline: a part of the model uses {self._name}, which it does not name and another rank has",
            remedy="name in parts() every layer in the part that uses it; or set strategy.name=fsdp2",
        )


def _keep(module: nn.Module, kept: frozenset[int], path: str = "") -> None:
    for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        if id(tensor) not in kept:
            setattr(module, name, None)
    for name, child in list(module.named_children()):
        tensors = [*child.parameters(), *child.buffers()]
        if tensors and not any(id(one) in kept for one in tensors):
            setattr(module, name, _Elsewhere(path + name, child))
        else:
            _keep(child, kept, f"{path}{name}.")


def _stage(parts: tuple[Part, ...], tensors: dict[str, Tensor], sizes: dict[int, int]) -> Stage:
    names = [name for part in parts for name in part.names]
    used = frozenset(
        id(one) for full, one in tensors.items() if any(full == name or full.startswith(f"{name}.") for name in names)
    )
    return Stage(parts=parts, tensors=used, parameters=sum(sizes.get(one, 0) for one in used))


def _joined(stages: Sequence[Stage], sizes: dict[int, int]) -> Stage:
    used = frozenset[int]().union(*(stage.tensors for stage in stages))
    return Stage(
        parts=tuple(part for stage in stages for part in stage.parts),
        tensors=used,
        parameters=sum(sizes.get(one, 0) for one in used),
    )


def _with_parameters(parts: Sequence[Stage]) -> list[Stage]:
    """Blocks of parts that each have parameters: a part without any joins the one before it, the first ones that after them."""
    blocks: list[Stage] = []
    for part in parts:
        if blocks and (part.parameters == 0 or blocks[-1].parameters == 0):
            before = blocks.pop()
            blocks.append(
                Stage(
                    parts=(*before.parts, *part.parts),
                    tensors=before.tensors | part.tensors,
                    parameters=before.parameters + part.parameters,
                )
            )
        else:
            blocks.append(part)
    return blocks if blocks and blocks[0].parameters else []
