"""The blocks of a model, and its units: the parts that are sharded, and gathered for their computation, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from torch import nn


def blocks_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The blocks of a model, e.g. those of a transformer or a residual network, each once, in the order in which the model names them.

    They are the composite children of the model's sequences (`nn.Sequential`, `nn.ModuleList`) or, if it is one, its own; a sequence
    within the model that has none is a block itself. A model without sequences has no blocks. Parts without parameters are none.
    """
    if isinstance(module, nn.Sequential | nn.ModuleList):
        found = [block for child in module if list(child.children()) for block in _blocks_in(child) or (child,)]
    else:
        found = [block for child in module.children() for block in _blocks_in(child)]
    return tuple(block for block in dict.fromkeys(found) if list(block.parameters()))


def units_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The blocks of a model that own their parameters.

    A block with a parameter that is used elsewhere, too, is no unit: its parameters belong to the whole model.
    """
    uses = _uses(module)
    return tuple(block for block in blocks_of(module) if all(uses[one] == own for one, own in _uses(block).items()))


class PassOrder:
    """Digest of the order in which the parts of a model have computed, which all ranks that gather the weights of a part share.

    Where two ranks gather different parts of one size, no collective fails: each computes with a mixture of both.

    Attributes:
        digest: of all passes so far, below 2**52, so that float64 has it exactly.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self.digest = 0
        for number, part in enumerate(parts, start=1):
            part.register_forward_pre_hook(partial(self._add, number))

    def _add(self, number: int, part: nn.Module, inputs: object) -> None:
        del part, inputs
        self.digest = (self.digest * 1_000_003 + number) % 2**52


def _blocks_in(child: nn.Module) -> tuple[nn.Module, ...]:
    if not isinstance(child, nn.Sequential | nn.ModuleList):
        return ()
    composite = tuple(one for one in child if list(one.children()))
    if composite or isinstance(child, nn.ModuleList):
        return composite or tuple(child)
    return (child,)


def _uses(module: nn.Module) -> Counter[int]:
    """How many parts of a module have each parameter, by its identity."""
    return Counter(id(one) for part in module.modules() for one in part.parameters(recurse=False))
