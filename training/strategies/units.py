"""The units of a model: the parts that are sharded, and gathered for their computation, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def units_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The blocks of a model, e.g. those of a transformer or a residual network, in the order in which the model names them.

    They are the composite children of the model's sequences (`nn.Sequential`, `nn.ModuleList`); a sequence that has none is a unit itself.
    A model without sequences has no units: it is sharded as a whole. Parts without parameters are none.
    """
    found = (unit for child in module.children() for unit in _units_in(child))
    return tuple(unit for unit in found if list(unit.parameters()))


def _units_in(child: nn.Module) -> Iterator[nn.Module]:
    if not isinstance(child, nn.Sequential | nn.ModuleList):
        return
    composite = [one for one in child if list(one.children())]
    if composite or isinstance(child, nn.ModuleList):
        yield from composite or child
    else:
        yield child
