"""Tensors of which every rank has its own: their mean, and all of them for a checkpoint."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from training.checkpoint.stateful import NamedTensors


@torch.no_grad()
def mean_over_ranks(own: NamedTensors) -> NamedTensors:
    """The means of floating-point tensors, as new ones, which are the same on every rank. Every rank calls it with the same names."""
    means: NamedTensors = {}
    for dtype in sorted({value.dtype for value in own.values()}, key=str):
        named = {name: value for name, value in own.items() if value.dtype == dtype}
        flat = torch.cat([value.reshape(-1) for value in named.values()]).div_(dist.get_world_size())
        dist.all_reduce(flat)
        pieces = torch.split(flat, [value.numel() for value in named.values()])
        means |= {name: piece.view_as(named[name]) for name, piece in zip(named, pieces, strict=True)}
    return means


def of_all_ranks(own: Tensor, mesh: DeviceMesh) -> DTensor:
    """This rank's tensor as its part of those of all ranks, (ranks, *shape), sharded over a mesh of all ranks."""
    return DTensor.from_local(own.detach().to(mesh.device_type)[None], mesh, [Shard(0)], run_check=False)
