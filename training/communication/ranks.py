"""Tensors of which every rank has its own: their mean, all of them for a checkpoint, and an optimizer's from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.state import OptimizerState


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


def load_optimizer(own: OptimizerState, state_dict: Mapping[str, Any]) -> None:
    """Load a state with tensors on the CPU of at least the parameters that this rank has, on its device.

    Raises:
        ResumeMismatchError: it is the state of an optimizer of another class.
    """
    tensors = {name: value for name, value in state_dict.items() if isinstance(value, Tensor)}
    placed = own.tensors_to_load(tensors)
    for name, value in placed.items():
        value.copy_(tensors[name])
    own.load_state_dict({"class": state_dict["class"], **placed})
