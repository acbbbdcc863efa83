"""Buffers of a model of which every rank has its own, such as batch norm's running statistics."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def copy_from_rank_0(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Copy the buffers of the first rank of a group, by default of all ranks, to its peers."""
    for buffer in module.buffers():
        value = buffer.contiguous()
        dist.broadcast(value, group=group, group_src=0)
        buffer.copy_(value)
