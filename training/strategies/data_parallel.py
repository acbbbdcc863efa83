"""Data parallelism: every rank has the whole model, `DistributedDataParallel` averages the gradients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from observability.quantities import listed
from training.checkpoint.stateful import Stateful
from training.communication.casts import CASTS, SENT_AS
from training.communication.hierarchical import HierarchicalAllReduce
from training.communication.nodes import NodeGroups
from training.communication.powersgd import PowerSgd
from training.communication.sharded_optimizer import ShardedOptimizerState, shard
from training.config.schema import CommunicationSettings
from training.data.types import Batch
from training.errors import SettingsError
from training.passes import OneByOne, Passes, PassesDone, StepContext
from training.precision import Precision
from training.recomputation import kept_state
from training.strategies.buffers import copy_from_rank_0
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer

_WHOLE_GRADIENTS: Final = CommunicationSettings()
_UNUSED: Final = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")


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
        nodes: NodeGroups | None = None,
    ) -> None:
        """Wrap the module. Every rank calls it.

        Args:
            module: the bare model, on its final device.
            make_optimizer: see `MakeOptimizer`.
            device: of this rank.
            communication: what the ranks send each other.
            powersgd: under hook=powersgd.
            nodes: the groups of this rank, for a hierarchical all-reduce.
        """
        is_sharded = communication.shard_optimizer
        super().__init__(module, (lambda it: shard(make_optimizer(it))) if is_sharded else make_optimizer)
        self._device = device
        self._powersgd = powersgd
        self._parallel = DistributedDataParallel(
            _Forward(module),
            device_ids=[device.index] if device.type == "cuda" else None,
            forward_sync_buffers=communication.local_steps is None,
            bucket_cap_mb=communication.bucket_megabytes,
            gradient_as_bucket_view=communication.gradient_as_bucket_view,
            static_graph=communication.static_graph,
            find_unused_parameters=communication.unused_parameters,
        )
        self._looks_for_unused = not (communication.static_graph or communication.unused_parameters)
        if not communication.static_graph:
            self._divide_into_buckets()
        if powersgd is not None:
            powersgd.attach(self._parallel, module)
        elif nodes is not None:
            HierarchicalAllReduce(nodes, sent_as=SENT_AS[communication.hook]).attach(self._parallel)
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
        with kept_state(self.module):  # which hooks of weights may change
            self._parallel(None).backward()
        self.module.zero_grad(set_to_none=True)

    def accumulating(self) -> AbstractContextManager[None]:
        """DDP's `no_sync`: no all-reduce before the last micro-batch."""
        return self._parallel.no_sync()

    def synchronize_buffers(self) -> None:
        """Copy rank 0's buffers to its peers, as DDP does at the start of the next training forward pass."""
        copy_from_rank_0(self.module)

    @property
    def has_whole_state(self) -> bool:
        """Not with buffers, but on rank 0; nor with a part of the optimizer's state, or what PowerSGD keeps of this rank's gradients."""
        is_sharded = isinstance(self.optimizer, ZeroRedundancyOptimizer)
        has_buffers = next(iter(self.module.buffers()), None) is not None
        return not is_sharded and self._powersgd is None and (dist.get_rank() == 0 or not has_buffers)

    def passes(self, context: StepContext) -> Passes:
        """One micro-batch after the other, announced by `start_step`."""
        return _Announced(self, context)

    def update(self, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
        """Clip by the norm, and step, announced by `end_step`."""
        norm, applied = super().update(precision, clip_norm)
        self.end_step(applied=applied)
        return norm, applied

    def start_step(self, step: int, *, scale: float) -> None:
        """Tell PowerSGD the optimizer step, counted from 1, and the factor of its loss."""
        if self._powersgd is not None:
            self._powersgd.start_step(step, scale=scale)

    def end_step(self, *, applied: bool) -> None:
        """Let PowerSGD keep the errors of the step, or forget them if the weights were not updated."""
        if self._powersgd is not None:
            self._powersgd.end_step(applied=applied)

    def check_used(self) -> None:
        """See after the passes of a step that its last one has used every weight, so that all gradients are summed.

        Torch says so at the start of the next step: after the last one, and before a checkpoint, nobody would learn that the gradients
        which share a bucket with an unused weight are those of one rank.

        Raises:
            RuntimeError: it has not, on this rank; see `unused_by`.
        """
        # Without any gradient the objective is at fault.
        if self._looks_for_unused and self._parallel.require_backward_grad_sync and self.has_gradients:
            self._parallel.reducer._check_reducer_finalized()  # noqa: SLF001 - the check of the next step

    def unused_by(self, error: RuntimeError) -> SettingsError | None:
        """An error of DDP about a step that has not used every weight, in the words of the settings; None for any other."""
        found = _UNUSED.search(str(error))
        if found is None:
            return None
        names = [name for name, one in self.module.named_parameters() if one.requires_grad]
        return _unused([names[int(index)] for index in found[1].split()])

    def states(self) -> dict[str, Stateful]:
        """The state of the bare model, of its optimizer, and of PowerSGD."""
        states = super().states()
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            states["optimizer"] = ShardedOptimizerState(self.optimizer, self.module, self._device)
        return states if self._powersgd is None else {**states, "communication": self._powersgd}


class _Announced(OneByOne):
    """The passes of steps that are announced to the strategy."""

    def __init__(self, parallel: DataParallel, context: StepContext) -> None:
        super().__init__(parallel, context)
        self._parallel = parallel
        self._precision = context.precision

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """See `Passes`."""
        self._parallel.start_step(step, scale=self._precision.scale)
        try:
            done = super().run(step, micro_batches, total=total)
            self._parallel.check_used()
        except RuntimeError as error:
            if (unused := self._parallel.unused_by(error)) is not None:
                raise unused from error
            raise
        return done


def _unused(names: Sequence[str]) -> SettingsError:
    return SettingsError(
        f"a step has not used {listed(names)} of the model, and strategy.name=ddp waits for the gradient of every weight",
        remedy="set communication.unused_parameters=true, or remove or freeze (requires_grad_(False)) what no step uses",
    )
