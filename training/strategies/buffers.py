"""Buffers of a model of which every rank has its own, such as batch norm's running statistics."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def copy_from_rank_0(module: nn.Module) -> None:
    """Copy rank 0's buffers to its peers."""
    for buffer in module.buffers():
        value = buffer.contiguous()
        dist.broadcast(value, src=0)
        buffer.copy_(value)
