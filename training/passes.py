"""The passes of an optimizer step: forward and backward of its micro-batches, which leave the gradient of the global batch.

How they are computed is the strategy's matter (`Strategy.passes`): one micro-batch after the other, as here, or by the schedule of a
pipeline (`training.strategies.schedule`). What they need of the run is a `StepContext`.
"""

from __future__ import annotations

import contextlib
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch.distributed as dist
from torch import Tensor, device, nn

from training.communication.tree import SumOverRanks
from training.data.types import Batch
from training.errors import SettingsError
from training.exposed_communication import when_gradients_are_computed
from training.flops import FlopCount
from training.objectives.objective import Objective, check_sums
from training.precision import Precision
from training.seeding import Own, seed_step
from training.step_clock import StepClock

_CHANGED = re.compile(r"has been modified by an inplace operation: \[([^\]]+\])")
"""torch's error of a backward pass, and its type and shape of the tensor."""

Span = tuple[int, int]
"""Two marks of the step's clock."""


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """What the passes of every step need of the run.

    Attributes:
        objective: of the run.
        precision: of the run.
        device: of this rank.
        clock: restarted before every step.
        run_seed: of the run.
        rank: of this process.
        world: number of ranks.
        sum_over_ranks: sums a tensor over the ranks, in place.
        flops: counts those of the first micro-batch; None on ranks that do not count.
        is_compiled: the strategy's model is compiled.
        generators: of random numbers, of user code (`generators_of`).
    """

    objective: Objective
    precision: Precision
    device: device
    clock: StepClock
    run_seed: int
    rank: int
    world: int
    sum_over_ranks: SumOverRanks = dist.all_reduce
    flops: FlopCount | None = None
    is_compiled: bool = False
    generators: Own = field(default_factory=dict)

    def seed(self, step: int, micro: int, place: int) -> None:
        """Seed the forward pass of a micro-batch, see `seed_step`.

        Args:
            step: optimizer step, counted from 1.
            micro: number of the micro-batch in the step.
            place: what computes it, e.g. this rank.
        """
        seed_step(self.run_seed, step, micro, place, own=self.generators)

    def targets(self, batch: Batch) -> Tensor:
        """The targets of the samples that count, on the device."""
        return batch.targets[: batch.count].to(self.device, non_blocking=True)

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The objective's sums over the samples that count, the loss first, with a gradient.

        Raises:
            SettingsError: the objective does not return them.
        """
        sums = self.objective.measure(outputs[: len(targets)], targets)
        check_sums(self.objective, sums, needs_gradient=True)
        return sums


@dataclass(kw_only=True)
class PassesDone:
    """The passes of one step on this rank.

    Attributes:
        sums: the objective's sums of every micro-batch whose loss this rank has computed.
        forward, backward, communication: what this rank did, by its marks.
        ended: the mark at which the gradients of all ranks were summed.
    """

    sums: list[tuple[Tensor, ...]] = field(default_factory=list)
    forward: list[Span] = field(default_factory=list)
    backward: list[Span] = field(default_factory=list)
    communication: list[Span] = field(default_factory=list)
    ended: int = 0


class Passes(Protocol):
    """Computes the gradients of steps."""

    @property
    def has_losses(self) -> bool:
        """Whether this rank computes the losses of the samples that it reads; of the ranks that read the same ones, one does."""
        ...

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """Leave in the parameters the gradient of the sum of all ranks' losses, divided by `total`.

        Args:
            step: optimizer step, counted from 1.
            micro_batches: this rank's.
            total: the weight of the global batch.
        """
        ...


class _DataParallelModel(Protocol):
    """A strategy whose ranks each compute their own samples."""

    @property
    def model(self) -> nn.Module:
        """The module that a step calls."""
        ...

    @property
    def module(self) -> nn.Module:
        """The bare model."""
        ...

    @property
    def averaged_ranks(self) -> int:
        """Number of ranks over which gradients are averaged; times it, they are sums over the ranks."""
        ...

    def accumulating(self) -> AbstractContextManager[None]:
        """The context of every micro-batch but a step's last: gradients accumulate locally, as in DDP's `no_sync`."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a micro-batch, and after a step's last average them over the ranks.

        Args:
            loss: a scalar, computed from the outputs of `model`, and scaled (`Precision.scaled`).
        """
        ...


class OneByOne:
    """Forward and backward pass of each micro-batch before the next one; the last backward pass sums the gradients over the ranks."""

    has_losses = True

    def __init__(self, strategy: _DataParallelModel, context: StepContext) -> None:
        self._strategy = strategy
        self._context = context

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """See `Passes`. Where the strategy averages gradients over the ranks, `averaged_ranks` turns the mean back into a sum."""
        context, strategy = self._context, self._strategy
        done = PassesDone()
        for micro, batch in enumerate(micro_batches):
            is_last = micro == len(micro_batches) - 1
            context.seed(step, micro, context.rank)
            with contextlib.nullcontext() if is_last else strategy.accumulating():
                self._compute(batch, done, factor=strategy.averaged_ranks / total, waits=is_last and context.world > 1)
        return done

    def _compute(self, batch: Batch, done: PassesDone, *, factor: Tensor | float, waits: bool = False) -> None:
        """Both passes of a micro-batch, whose loss counts times `factor`; `waits` if the backward pass does for the peers' gradients."""
        clock = self._context.clock
        with self._counting(batch):
            began = clock.mark()
            loss, *others = self._forward(batch)
            forwarded = clock.mark()
            computed, done.ended = self._backward(loss * factor, waits=waits)
        done.forward.append((began, forwarded))
        done.backward.append((forwarded, computed))
        done.communication.append((computed, done.ended))
        done.sums.append((loss.detach(), *others))

    def _counting(self, batch: Batch) -> AbstractContextManager[None]:
        flops = self._context.flops
        if flops is None:
            return contextlib.nullcontext()
        if self._context.is_compiled:
            flops.count_apart(self._strategy.module, batch.inputs)
            return contextlib.nullcontext()
        return flops.counting(len(batch.inputs))

    def _forward(self, batch: Batch) -> tuple[Tensor, ...]:
        inputs = batch.inputs.to(self._context.device, non_blocking=True)
        with self._context.precision.autocast():
            outputs = self._strategy.model(inputs)
        return self._context.measure(outputs, self._context.targets(batch))

    def _backward(self, loss: Tensor, *, waits: bool) -> tuple[int, int]:
        """Add the gradients; returns the marks at the last one of this rank and, if the pass `waits` for them, at those of all ranks."""
        clock = self._context.clock
        computed: list[int] = []
        if waits:
            when_gradients_are_computed(loss, lambda: computed.append(clock.mark()))
        try:
            self._strategy.backward(self._context.precision.scaled(loss))
        except RuntimeError as error:
            if (changed := _CHANGED.search(str(error))) is None:
                raise
            raise _changed_in_place(changed[1], is_compiled=self._context.is_compiled) from error
        ended = clock.mark()
        return (computed[0] if computed else ended), ended


def _changed_in_place(what: str, *, is_compiled: bool) -> SettingsError:
    compiled = (
        "; or set compute.compile=off: a compiled step may keep a buffer where the model clones it"
        if is_compiled
        else ""
    )
    return SettingsError(
        f"model.name: forward() has changed a tensor in place ({what}) whose values the backward pass needs",
        remedy=f"assign a new tensor, to a buffer too (self.buffer = …), instead of changing one that the outputs depend on{compiled}",
    )
