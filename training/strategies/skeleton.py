"""A model without memory, from which one is made whole again after its weights were divided among the ranks."""

from __future__ import annotations

import torch
from torch import nn

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.state import load_own
from training.models.trial_copy import computed_in, copied


def skeleton_of(module: nn.Module) -> nn.Module:
    """A copy of a module on torch's meta device, which allocates nothing: names, shapes and types, and which weights are shared."""
    bare = {id(value): nn.Parameter(value.to("meta"), value.requires_grad) for value in module.parameters()}
    buffers = {id(value): value.to("meta") for value in module.buffers()}
    computed = {id(value): value.detach().to("meta") for value in computed_in(module)}
    return copied(module, {**bare, **buffers, **computed})


def assembled(skeleton: nn.Module, state: NamedTensors, *, live: nn.Module) -> nn.Module:
    """A copy in host memory with whole weights.

    Args:
        skeleton: of the module.
        state: its `state_dict`, whole.
        live: the module itself, for buffers that are not in the state.
    """
    # `to_empty` would give each use of a shared weight memory of its own.
    bare = {
        id(one): nn.Parameter(torch.empty_like(one, device="cpu"), one.requires_grad) for one in skeleton.parameters()
    }
    buffers = {id(one): torch.empty_like(one, device="cpu") for one in skeleton.buffers()}
    made = copied(skeleton, {**bare, **buffers})
    load_own(made, state)
    for name, value in live.named_buffers():
        if name not in state:
            made.get_buffer(name).copy_(value)
    return made
