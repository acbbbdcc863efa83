"""Sharded tensors in checkpoints: a checkpoint holds whole tensors, so that a run may go on under another strategy or world size."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that is sharded over the ranks, in rank 0's host memory; another tensor as it is.

    Gathering is a collective: every rank calls it for the same tensors in the same order. Ranks other than 0 get an empty tensor of the
    same type: a node has the memory for one copy of the model, not for one of each of its ranks.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    gathered = tensor.full_tensor()
    return gathered.cpu() if dist.get_rank() == 0 else torch.empty(0, dtype=tensor.dtype)


def placed_like(live: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, which every rank has, on the device of a live one, and sharded as it is. Communicates nothing."""
    if not isinstance(live, DTensor):
        return value.to(live.device)
    own = value.to(live.device)
    return distribute_tensor(own, live.device_mesh, live.placements, src_data_rank=None)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, which shares its memory; another tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
