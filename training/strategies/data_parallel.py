"""Data parallelism: every rank has the whole model, `DistributedDataParallel` averages the gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer


class DataParallel(SingleProcess):
    """DDP over all ranks of the process group. Weights, gradients and optimizer state are the same on all of them after every step.

    Buffers are not: DDP copies rank 0's to its peers when a training forward pass starts, and in that pass each rank updates its own.
    """

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer, *, device: torch.device) -> None:
        super().__init__(module, make_optimizer)
        device_ids = [device.index] if device.type == "cuda" else None
        self._parallel = DistributedDataParallel(module, device_ids=device_ids, gradient_as_bucket_view=True)
        self.model = self._parallel
        self.averaged_ranks = dist.get_world_size()

    def accumulating(self) -> AbstractContextManager[None]:
        """DDP's `no_sync`: no all-reduce before the last micro-batch."""
        return self._parallel.no_sync()

    @torch.no_grad()
    def synchronize_buffers(self) -> None:
        """Copy rank 0's buffers to its peers, as DDP does at the start of the next training forward pass."""
        for buffer in self.module.buffers():
            value = buffer.contiguous()
            dist.broadcast(value, src=0)
            buffer.copy_(value)
