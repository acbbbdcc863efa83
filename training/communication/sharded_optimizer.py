"""ZeRO stage 1 beside DDP: each rank keeps the optimizer's state of some weights, updates these, and sends them to its peers.

torch's `ZeroRedundancyOptimizer` divides the weights, largest first, each to the rank with the fewest values so far. Its own way to save
the state pickles that of every rank and sends it to all; here rank 0 alone receives it, tensor by tensor, under the names that every
checkpoint has.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.state import OptimizerState
from training.communication.ranks import load_optimizer


def shard(optimizer: Optimizer) -> ZeroRedundancyOptimizer:
    """An optimizer of the same class, weights and hyperparameters, whose state is divided over the ranks."""
    return ZeroRedundancyOptimizer(optimizer.param_groups, optimizer_class=type(optimizer))


class ShardedOptimizerState:
    """The whole state of an optimizer that is divided over the ranks, as `OptimizerState` has that of one that is not."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer, module: nn.Module, device: torch.device) -> None:
        """Args: `module` has the optimizer's weights, `device` is this rank's."""
        self._own = OptimizerState(optimizer.optim, module)
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        """The state of all weights on rank 0, in host memory but for its own; on its peers the class only. A collective."""
        own = self._own.state_dict()
        name = own.pop("class")
        return {"class": name, **self._gather(own)}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Load what belongs to this rank's weights out of the whole state.

        Raises:
            ResumeMismatchError: it is the state of an optimizer of another class.
        """
        load_optimizer(self._own, state_dict)

    def _gather(self, own: NamedTensors) -> NamedTensors:
        described = {name: (value.shape, value.dtype) for name, value in own.items()}
        of_ranks: list[dict[str, tuple[torch.Size, torch.dtype]]] = [{}] * dist.get_world_size()
        dist.all_gather_object(of_ranks, described)
        if dist.get_rank() > 0:
            for value in own.values():
                dist.send(value.to(self._device).contiguous(), dst=0)
            return {}
        for owner, named in enumerate(of_ranks[1:], 1):
            own |= {name: self._received(owner, shape, dtype) for name, (shape, dtype) in named.items()}
        return own

    def _received(self, owner: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        value = torch.empty(shape, dtype=dtype, device=self._device)
        dist.recv(value, src=owner)
        return value.cpu()
