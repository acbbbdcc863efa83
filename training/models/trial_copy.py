"""A copy of a model that a check may run: the model itself, and buffers that change in a forward pass, stay as they are."""

from __future__ import annotations

import copy

from torch import nn

_MOST_PARAMETERS = 10**9
"""Parameters of a model of which a copy may fit beside it."""


def trial_copy(module: nn.Module) -> nn.Module | None:
    """A copy of a model; None if it is too large for one beside it, or cannot be copied, as with a lock among its attributes."""
    if sum(one.numel() for one in module.parameters()) > _MOST_PARAMETERS:
        return None
    try:
        return copy.deepcopy(module)
    except Exception:  # noqa: BLE001 - whatever a user's attribute raises
        return None
