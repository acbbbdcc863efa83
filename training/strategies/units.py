"""The blocks of a model, and its units: the parts that are sharded, and gathered for their computation, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

_SEQUENCES = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def blocks_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The blocks of a model, e.g. those of a transformer or a residual network, each once, in the order in which the model names them.

    They are the composite children of the model's sequences, wherever in the model these are: `nn.Sequential`, `nn.ModuleList`,
    `nn.ModuleDict` and other modules without a forward(), in whose place their own children are. A sequence within the model that has no
    composite child is a block itself, or its children are if it has no forward(). A model without sequences has no blocks. Parts without
    parameters, and those of other blocks, are none.
    """
    if isinstance(module, _SEQUENCES):
        found = [
            block
            for child in module.children()
            for block in ((child,) if _is_composite(child) and _has_own_forward(child) else _blocks_in(child))
        ]
    else:
        found = [block for child in module.children() for block in _blocks_in(child)]
    found = [one for one in dict.fromkeys(found) if not isinstance(one, ParametrizationList) and list(one.parameters())]
    inner = {id(part) for block in found for part in block.modules() if part is not block}
    return tuple(one for one in found if id(one) not in inner)


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


def _blocks_in(part: nn.Module) -> list[nn.Module]:
    """The blocks within a part of a model."""
    children = list(part.children())
    if _has_own_forward(part) and not isinstance(part, _SEQUENCES):
        return [block for child in children for block in _blocks_in(child)]
    composite = [child for child in children if _is_composite(child)]
    if isinstance(part, nn.Sequential) and not composite:
        return [part]
    return [
        block
        for child in composite or children
        for block in ([child] if isinstance(child, nn.Sequential) or _has_own_forward(child) else _blocks_in(child))
    ]


def _is_composite(part: nn.Module) -> bool:
    return next(part.children(), None) is not None


def _has_own_forward(part: nn.Module) -> bool:
    """Whether a part computes something, and not only its children, each called by what it is in, or one after another."""
    return type(part).forward not in {nn.Module.forward, nn.Sequential.forward}


def _uses(module: nn.Module) -> Counter[int]:
    """How many parts of a module have each parameter, by its identity."""
    return Counter(id(one) for part in module.modules() for one in part.parameters(recurse=False))
