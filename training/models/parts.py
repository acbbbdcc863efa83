"""The parts of a model: its forward pass as a sequence of functions of one tensor, between which a pipeline may cut it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a model's forward pass.

    Attributes:
        names: the submodules and parameters of the model that it uses, by their names in the model.
        forward: maps the output of the part before it, the first one the model's input, to its own.
    """

    names: tuple[str, ...]
    forward: Callable[[Tensor], Tensor]


@runtime_checkable
class HasParts(Protocol):
    """A model that names its parts. One part after the other computes what its forward pass does."""

    def parts(self) -> list[Part]:
        """The parts, first to last; every parameter and buffer belongs to one of them, a shared one to each that uses it."""
        ...


def parts_of(module: nn.Module) -> list[Part]:
    """The parts of a model: those that it names, or the layers of an `nn.Sequential`, one for each use; none of another model.

    A subclass of `nn.Sequential` with a forward pass of its own is another model.
    """
    if isinstance(module, HasParts):
        return module.parts()
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        # Not `named_children`, which names a layer that is used twice once.
        return [Part(names=(name,), forward=layer) for name, layer in module._modules.items() if layer is not None]  # noqa: SLF001
    return []
