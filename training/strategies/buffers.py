"""Buffers of a model of which every rank has its own, such as batch norm's running statistics."""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn


@torch.no_grad()
def copy_from_rank_0(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Copy the buffers of the first rank of a group, by default of all ranks, to its peers; one broadcast for those of a type."""
    of_types: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for buffer in module.buffers():
        of_types[buffer.dtype].append(buffer)
    for buffers in of_types.values():
        values = torch.cat([buffer.reshape(-1) for buffer in buffers])
        dist.broadcast(values, group=group, group_src=0)
        for buffer, value in zip(buffers, values.split_with_sizes([one.numel() for one in buffers]), strict=True):
            buffer.copy_(value.view(buffer.shape))
