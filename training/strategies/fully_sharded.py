"""Fully sharded data parallelism (FSDP2): every rank keeps a part of each weight, its gradient and its optimizer state.

The weights of a unit (`training.strategies.units`) are gathered for its forward and for its backward pass, and the gradients are reduced
to the parts. Per rank, weights, gradients and optimizer state take 1 / shards of their size, as in ZeRO stage 3 (Rajbhandari et al.,
arXiv:1910.02054, section 5). With `replicas` the ranks form groups that each share one copy of the model (HSDP): weights are gathered
within a group, gradients are summed over the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from training.checkpoint.sharding import whole
from training.config.schema import StrategySettings
from training.passes import Passes, StepContext
from training.strategies.buffers import FromBuffersOfRank0, copy_from_rank_0
from training.strategies.gradient_hooks import Hook, attach_hooks, hooks_of
from training.strategies.single_process import SingleProcess
from training.strategies.skeleton import assembled, skeleton_of
from training.strategies.strategy import MakeOptimizer
from training.strategies.units import PassOrder, units_of


class FullySharded(SingleProcess):
    """FSDP2 over all ranks of the process group; after every step the parts of the weights are together those of one process.

    Its hooks are in the module and sharded tensors (`DTensor`) in its parameters, so that most of what one process does serves here too.

    Buffers are not sharded: as under DDP, those of rank 0 count.
    """

    computes_together = True
    has_whole_state = False
    shards_state = True

    def __init__(
        self, module: nn.Module, make_optimizer: MakeOptimizer, *, settings: StrategySettings, device: torch.device
    ) -> None:
        world = dist.get_world_size()
        self._skeleton = skeleton_of(module)
        hooks = {name: found for name, one in module.named_parameters() if (found := hooks_of(one))}
        mesh = _mesh(device, settings, world=world)
        offload = CPUOffloadPolicy() if settings.offload else OffloadPolicy()
        units = units_of(module)
        self._order = PassOrder(units)
        for part in (*units, module):
            fully_shard(
                part,
                mesh=mesh,
                reshard_after_forward=settings.reshard_after_forward,
                mp_policy=_mixed_precision(settings, is_whole=part is module),
                offload_policy=offload,
            )
        if hooks:
            _keep_hooks(module, hooks)
        super().__init__(module, make_optimizer)
        self.averaged_ranks = world

    @property
    def pass_order(self) -> int:  # type: ignore[override]
        """Of the units."""
        return self._order.digest

    def passes(self, context: StepContext) -> Passes:
        """One micro-batch after the other, from rank 0's buffers."""
        return FromBuffersOfRank0(super().passes(context), self.module)

    def compile(self, mode: str) -> None:
        """Refused by the settings."""
        raise AssertionError(f"compute.compile={mode} under FSDP2")

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """No reduction before the last micro-batch; until then every rank keeps whole gradients."""
        sharded = cast("FSDPModule", self.module)
        sharded.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            sharded.set_requires_gradient_sync(True)

    def gradient_norm(self) -> Tensor:
        """The L2 norm over all parts of all gradients."""
        norm = nn.utils.get_total_norm(self._gradients())
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def clip_gradients(self, limit: float, norm: Tensor) -> None:
        """Scale this rank's parts in place, by the factor of `torch.nn.utils.clip_grads_with_norm_`."""
        factor = min(1.0, limit / (float(norm) + 1e-6))
        for gradient in self._gradients():
            gradient.mul_(factor)

    def synchronize_buffers(self) -> None:
        """Copy rank 0's buffers to its peers."""
        copy_from_rank_0(self.module)

    def whole_module(self) -> nn.Module:
        """On rank 0 a copy with whole weights, in host memory; on its peers the sharded module."""
        state = {name: whole(value) for name, value in self.module.state_dict().items()}
        return self.module if dist.get_rank() else assembled(self._skeleton, state, live=self.module)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.module.parameters() if p.grad is not None]


def _mesh(device: torch.device, settings: StrategySettings, *, world: int) -> DeviceMesh:
    if settings.name == "hsdp":
        replicas = settings.replicas
        return init_device_mesh(device.type, (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device.type, (world,), mesh_dim_names=("shard",))


def _keep_hooks(module: nn.Module, hooks: Mapping[str, Mapping[int, Hook]]) -> None:
    """Let the whole weights, of which a backward pass computes the gradients before they are divided, run hooks of the model."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.unshard()
    attach_hooks(module.named_parameters(), hooks)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def _mixed_precision(settings: StrategySettings, *, is_whole: bool) -> MixedPrecisionPolicy:
    """Gradients are always reduced in float32. Only the whole model returns it: what follows a unit has weights in bf16, too."""
    if settings.parameters == "fp32":
        return MixedPrecisionPolicy()
    output = torch.float32 if is_whole else None
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=output)
