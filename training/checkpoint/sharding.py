"""Tensors that are sharded over the ranks (`DTensor`), as a whole and in parts."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

NamedTensors = dict[str, Tensor]


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that is sharded over the ranks, in rank 0's host memory; another tensor as it is.

    Gathering is a collective: every rank calls it for the same tensors in the same order. Ranks other than 0 get an empty tensor of the
    same type: a node has the memory for one copy of the model, not for one of each of its ranks.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    gathered = tensor.full_tensor()
    return gathered.cpu() if dist.get_rank() == 0 else torch.empty(0, dtype=tensor.dtype)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, which shares its memory; another tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
