"""Data parallelism: every rank has the whole model, `DistributedDataParallel` averages the gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from training.communication.casts import CASTS
from training.communication.powersgd import PowerSgd
from training.config.schema import CommunicationSettings
from training.strategies.buffers import copy_from_rank_0
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer

_WHOLE_GRADIENTS: Final = CommunicationSettings()


class _Forward(nn.Module):
    """Calls a module from code of ours: `torch.compile` compiles no frame of torch itself, such as the forward pass of `nn.Sequential`.

    Without inputs it uses every weight once, in the order of their definition.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor | None) -> Tensor:
        """The outputs of the module; without inputs, a scalar."""
        if inputs is None:
            return torch.stack([one.square().sum().float() for one in self.parameters() if one.requires_grad]).sum()
        outputs: Tensor = self.module(inputs)
        return outputs


class DataParallel(SingleProcess):
    """DDP over all ranks of the process group. Weights, gradients and optimizer state are the same on all of them after every step.

    Buffers are not: DDP copies rank 0's to its peers when a training forward pass starts, and in that pass each rank updates its own.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        *,
        device: torch.device,
        communication: CommunicationSettings = _WHOLE_GRADIENTS,
        powersgd: PowerSgd | None = None,
    ) -> None:
        super().__init__(module, make_optimizer)
        self._parallel = DistributedDataParallel(
            _Forward(module),
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=communication.bucket_megabytes,
            gradient_as_bucket_view=communication.gradient_as_bucket_view,
            static_graph=communication.static_graph,
        )
        if not communication.static_graph:
            self._divide_into_buckets()
        if powersgd is not None:
            powersgd.attach(self._parallel, module)
        elif communication.hook in CASTS:
            self._parallel.register_comm_hook(dist.group.WORLD, CASTS[communication.hook])
        self.model = self._parallel
        self.averaged_ranks = dist.get_world_size()

    def _divide_into_buckets(self) -> None:
        """Let DDP divide the gradients into the buckets of the whole run before its first step.

        DDP starts every process with one bucket and divides it after the first backward pass, in the order in which that has filled it.
        An all-reduce of more than two ranks rounds a sum by its place in the bucket: the first step of a resumed run would differ from
        that of an uninterrupted one. It also keeps the state of a communication hook by bucket. This backward pass fills the buckets
        from the last weight to the first, as those of most models do, and is the only one with that purpose.
        """
        self._parallel(None).backward()
        self.module.zero_grad(set_to_none=True)

    def accumulating(self) -> AbstractContextManager[None]:
        """DDP's `no_sync`: no all-reduce before the last micro-batch."""
        return self._parallel.no_sync()

    def synchronize_buffers(self) -> None:
        """Copy rank 0's buffers to its peers, as DDP does at the start of the next training forward pass."""
        copy_from_rank_0(self.module)
