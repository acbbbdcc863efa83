"""Data parallelism over a fixed number of logical shards: the same bits with 1, 2, 4, ... workers.

The run computes what so many workers would, one logical shard each, however many there are. Nothing depends on who computes a shard:

* It is a micro-batch of its own, of the same samples (`BatchPlan`), so its kernels see the same shapes. Its random numbers are those of
  (seed, step, shard).
* It starts from the buffers that the step before has left, e.g. batch norm's running statistics, and normalizes by its own samples. The
  buffers that shard 0 leaves are those of the next step, as DDP's are those of rank 0.
* The gradients of the shards are summed along one binary tree (`training.communication.tree`), and so are the sums of the objective.
  A weight that a shard does not use has a gradient of zeros there, so that every rank sends as much. One that no shard has used yet has
  none, as in one process, and so no weight decay.
* The gradients then have the same place in memory in every world: kernels may take a norm in another order elsewhere.

EasyScale (Li et al., SC'23) calls such shards EasyScaleThreads, VirtualFlow (Or et al., MLSys 2022) virtual nodes.
"""

from __future__ import annotations

from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.communication.tree import TreeSum, tree_all_reduce
from training.data.types import Batch
from training.passes import OneByOne, Passes, PassesDone, StepContext
from training.strategies.buffers import copy_from_rank_0
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer

_ALIGNMENT = 64
"""Bytes at which a gradient starts, so that kernels may use their widest loads."""


class LogicalShards(SingleProcess):
    """The whole model on every rank, and its gradients summed over the logical shards of all ranks."""

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer, *, shards: int, world: int) -> None:
        """Args: `shards` are those of all ranks; the world, a power of two, divides them."""
        super().__init__(module, make_optimizer)
        self._world = world
        self._gradients = TreeSum()
        self._summed = _Flat(self._parameters)
        self._buffers = _ShardBuffers(module)
        self._has_gradients = False
        self._agrees = False
        self._is_used = torch.zeros(len(self._parameters), dtype=torch.bool)
        own = shards // world
        self.note = (
            f"{shards} logical shards, {own} on each of {world} ranks: the same bits with any number of ranks that is a power of two up "
            f"to {shards}"
        )

    def passes(self, context: StepContext) -> Passes:
        """One logical shard after the other."""
        return _ShardByShard(self, context)

    @property
    def has_gradients(self) -> bool:
        """Whether a shard of this rank gave a weight a gradient; those that none gave are zeros."""
        return self._has_gradients

    def start_step(self) -> None:
        """Keep the buffers that every shard of the step starts from."""
        self._has_gradients = False
        self._buffers.start_step()

    def end_shard(self, shard: int) -> None:
        """Take the gradients of a shard, and put the buffers back."""
        gradients = [one.grad for one in self._parameters]
        self._has_gradients |= any(one is not None for one in gradients)
        if not self._agrees:
            self._is_used |= torch.tensor([one is not None for one in gradients])
        self._gradients.add(
            [
                torch.zeros_like(weight) if own is None else own
                for weight, own in zip(self._parameters, gradients, strict=True)
            ]
        )
        for one in self._parameters:
            one.grad = None
        self._buffers.end_shard(shard)

    def end_step(self) -> None:
        """Leave the sums over all shards in the parameters, and shard 0's buffers in the module."""
        self._summed.fill(self._gradients.total())
        if self._world > 1:
            self._summed.all_reduce()
        for weight, gradient, is_used in zip(self._parameters, self._summed.tensors, self._used(), strict=True):
            weight.grad = gradient if is_used else None
        self._buffers.end_step()
        if self._world > 1:
            copy_from_rank_0(self.module)

    def _used(self) -> list[bool]:
        """Whether any shard has used each weight, in this step or one before it; asks the other ranks until all are."""
        if not self._agrees:
            with_state = self.optimizer.state
            self._is_used |= torch.tensor([weight in with_state for weight in self._parameters])
            if self._world > 1:
                numbers = self._is_used.to(self._parameters[0].device, torch.int32)
                dist.all_reduce(numbers)
                self._is_used = numbers.cpu() > 0
            self._agrees = bool(self._is_used.all())
        return self._is_used.tolist()


class _ShardByShard(OneByOne):
    """The passes of this rank's shards, and then the sum over all ranks."""

    def __init__(self, strategy: LogicalShards, context: StepContext) -> None:
        super().__init__(strategy, context)
        self._shards = strategy

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """See `Passes`; each micro-batch is a shard."""
        context, shards = self._context, self._shards
        done = PassesDone()
        shards.start_step()
        for shard, batch in enumerate(micro_batches, start=context.rank * len(micro_batches)):
            context.seed(step, 0, shard)
            self._compute(batch, done, factor=1 / total)
            shards.end_shard(shard)
            done.backward.append((done.ended, context.clock.mark()))
        computed = context.clock.mark()
        shards.end_step()
        done.ended = context.clock.mark()
        done.communication.append((computed, done.ended))
        return done


class _Flat:
    """A tensor for each weight, all of a type in one piece of memory.

    Attributes:
        tensors: in the order of the weights.
    """

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.tensors: list[Tensor] = [torch.empty(0)] * len(weights)
        self._memory: list[Tensor] = []
        self._scratch: dict[torch.dtype, Tensor] = {}
        for dtype in dict.fromkeys(weight.dtype for weight in weights):
            self._lay_out(weights, dtype)

    def _lay_out(self, weights: list[nn.Parameter], dtype: torch.dtype) -> None:
        step = _ALIGNMENT // dtype.itemsize
        numbered = [(number, weight) for number, weight in enumerate(weights) if weight.dtype == dtype]
        ends = list(accumulate(-(-weight.numel() // step) * step for _, weight in numbered))
        memory = torch.zeros(ends[-1], dtype=dtype, device=numbered[0][1].device)
        self._memory.append(memory)
        for (number, weight), start in zip(numbered, [0, *ends], strict=False):
            # In the memory order of the weight, which fused optimizers need.
            order = torch.empty_like(weight, device="meta").stride()
            self.tensors[number] = memory.as_strided(weight.shape, order, start)

    def fill(self, values: list[Tensor]) -> None:
        """Copy a tensor for each weight."""
        torch._foreach_copy_(self.tensors, values)

    def all_reduce(self) -> None:
        """Sum them over the ranks."""
        for memory in self._memory:
            scratch = self._scratch.setdefault(memory.dtype, memory.new_empty(-(-len(memory) // 2)))
            tree_all_reduce(memory, scratch=scratch)


class _ShardBuffers:
    """Lets every shard of a step start from the same buffers, and keeps those of shard 0."""

    def __init__(self, module: nn.Module) -> None:
        self._live = list(module.buffers())
        self._start = [torch.empty_like(buffer) for buffer in self._live]
        self._left = [torch.empty_like(buffer) for buffer in self._live]
        self._has_left = False

    @torch.no_grad()
    def start_step(self) -> None:
        _copy(self._start, self._live)

    @torch.no_grad()
    def end_shard(self, shard: int) -> None:
        if shard == 0:
            _copy(self._left, self._live)
            self._has_left = True
        _copy(self._live, self._start)

    @torch.no_grad()
    def end_step(self) -> None:
        """Peers of the rank that has shard 0 end with the buffers of the step's start."""
        if self._has_left:
            _copy(self._live, self._left)


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
