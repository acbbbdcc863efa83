"""One optimizer step: micro-batches forward and backward, gradients summed over the ranks, clipped, applied.

The gradient is that of the mean loss over the *global* batch, for any world size and accumulation, and for the short batch at the end of
an epoch: each rank sums the losses of its own samples and divides by the number of samples of all ranks, which the batch plan knows. An
objective with weights (`Objective.weight`), e.g. tokens, costs one more small all-reduce before the forward pass. Where the strategy
averages gradients over the ranks, the factor `averaged_ranks` turns the mean back into a sum.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from training.data.types import Batch
from training.exposed_communication import when_gradients_are_computed
from training.flops import FlopCount
from training.objectives.objective import Objective, check_reach, check_sums
from training.precision import Precision
from training.seeding import seed_step
from training.step_clock import step_clock
from training.strategies.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of a step on this rank.

    Attributes:
        sums: the objective's sums over this rank's samples, the loss first.
        weight: the sum of their weights in the mean loss.
        samples: this rank's samples.
        gradient_norm: global norm before clipping; NaN or infinite if the step was bad.
        applied: the weights were updated.
        forward_seconds, backward_seconds: of the device (`training.step_clock`); backward ends with this rank's own gradients, and
            includes the part of the all-reduce that overlaps.
        communication_seconds: then waiting for the peers' gradients (`training.exposed_communication`).
        optimizer_seconds: the rest: the norm, clipping and the update.
    """

    sums: list[float]
    weight: float
    samples: int
    gradient_norm: float
    applied: bool
    forward_seconds: float
    backward_seconds: float
    communication_seconds: float
    optimizer_seconds: float

    @property
    def loss_sum(self) -> float:
        """Sum of the losses of this rank's samples."""
        return self.sums[0]


@dataclass(frozen=True, kw_only=True)
class _Span:
    """A micro-batch by its marks: began, forward pass done, gradients of this rank computed, those of all ranks there."""

    began: int
    forwarded: int
    computed: int
    ended: int


class StepRunner:
    """Runs optimizer steps on the model of a strategy."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        objective: Objective,
        precision: Precision,
        device: torch.device,
        clip_norm: float | None,
        seed: int,
        rank: int,
        world: int,
        keeps_buffers: bool,
        flops: FlopCount | None = None,
        is_compiled: bool = False,
    ) -> None:
        """Prepare the runner.

        Args:
            strategy: has the model.
            objective: of the run.
            precision: of the run.
            device: of this rank.
            clip_norm: largest norm of the gradient; None does not clip.
            seed: of the run.
            rank: of this process.
            world: number of ranks.
            keeps_buffers: restore batch norm's statistics after a step that was not applied.
            flops: counts those of the first micro-batch.
            is_compiled: the strategy's model is compiled.
        """
        self.strategy = strategy
        self._objective = objective
        self.precision = precision
        self._device = device
        self._clip_norm = clip_norm
        self._seed = seed
        self._rank = rank
        self._world = world
        self._buffers = list(strategy.module.buffers()) if keeps_buffers else []
        self._kept = [torch.empty_like(b) for b in self._buffers]
        self._flops = flops
        self._is_compiled = is_compiled
        self._clock = step_clock(device)

    def run(self, step: int, micro_batches: list[Batch], *, global_count: int) -> StepResult:
        """Do optimizer step `step` (1-based) on this rank's `micro_batches` of a global batch of `global_count` samples.

        A step whose gradient is not finite leaves weights and buffers as they are and has `applied` False.
        """
        measured = list[tuple[Tensor, ...]]()
        spans = list[_Span]()
        self._clock.restart()
        self.strategy.optimizer.zero_grad(set_to_none=True)
        _copy_all(self._kept, self._buffers)
        last = len(micro_batches) - 1
        weight, total = self._weigh(micro_batches, global_count)
        for micro, batch in enumerate(micro_batches):
            seed_step(self._seed, step, micro, self._rank)
            accumulating = self.strategy.accumulating() if micro < last else contextlib.nullcontext()
            with accumulating, self._counting(batch):
                began = self._clock.mark()
                loss, *others = self._forward(batch)
                forwarded = self._clock.mark()
                scaled = loss * (self.strategy.averaged_ranks / total)
                computed, ended = self._backward(scaled, waits=micro == last and self._world > 1)
            spans.append(_Span(began=began, forwarded=forwarded, computed=computed, ended=ended))
            measured.append((loss.detach(), *others))
        check_reach(self._objective, has_gradients=self.strategy.has_gradients)
        norm, applied = self.strategy.update(self.precision, self._clip_norm)
        if not applied:
            _copy_all(self._buffers, self._kept)
        seconds = self._clock.seconds
        return StepResult(
            # Read here and not per micro-batch, like the clock: reading the norm has already synchronized with the device.
            sums=[sum(map(float, column)) for column in zip(*measured, strict=True)],
            weight=float(weight),
            samples=sum(batch.count for batch in micro_batches),
            gradient_norm=norm,
            applied=applied,
            forward_seconds=sum(seconds(span.began, span.forwarded) for span in spans),
            backward_seconds=sum(seconds(span.forwarded, span.computed) for span in spans),
            communication_seconds=sum(seconds(span.computed, span.ended) for span in spans),
            optimizer_seconds=self._clock.seconds_since(spans[-1].ended),
        )

    def _counting(self, batch: Batch) -> AbstractContextManager[None]:
        if self._flops is None:
            return contextlib.nullcontext()
        if self._is_compiled:
            self._flops.count_apart(self.strategy.module, batch.inputs)
            return contextlib.nullcontext()
        return self._flops.counting(len(batch.inputs))

    def _backward(self, loss: Tensor, *, waits: bool) -> tuple[int, int]:
        """Add the gradients; returns the marks at the last one of this rank and, if the pass `waits` for them, at those of all ranks."""
        computed: list[int] = []
        if waits:
            when_gradients_are_computed(loss, lambda: computed.append(self._clock.mark()))
        self.strategy.backward(self.precision.scaled(loss))
        ended = self._clock.mark()
        return (computed[0] if computed else ended), ended

    def _weigh(self, micro_batches: list[Batch], global_count: int) -> tuple[Tensor | int, Tensor | int]:
        """The weight of this rank's samples in the mean loss, and that of the global batch."""
        weights = [self._objective.weight(self._targets(batch)) for batch in micro_batches]
        known = [weight for weight in weights if weight is not None]
        if not known:
            return sum(batch.count for batch in micro_batches), global_count
        own = torch.stack(known).sum().float()
        total = own.clone()
        if self._world > 1:
            dist.all_reduce(total)
        # Where nothing counts, the sum of the losses is 0, and so is the gradient.
        return own, torch.where(total > 0, total, 1.0)

    def _forward(self, batch: Batch) -> tuple[Tensor, ...]:
        inputs = batch.inputs.to(self._device, non_blocking=True)
        with self.precision.autocast():
            outputs = self.strategy.model(inputs)[: batch.count]
        sums = self._objective.measure(outputs, self._targets(batch))
        check_sums(self._objective, sums, needs_gradient=True)
        return sums

    def _targets(self, batch: Batch) -> Tensor:
        return batch.targets[: batch.count].to(self._device, non_blocking=True)


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
