"""One optimizer step: micro-batches forward and backward, gradients summed over the ranks, clipped, applied.

The gradient is that of the mean loss over the *global* batch, for any world size and accumulation, and for the short batch at the end of
an epoch: each rank sums the losses of its own samples and divides by the number of samples of all ranks, which the batch plan knows. An
objective with weights (`Objective.weight`), e.g. tokens, costs one more small all-reduce before the forward pass. How the passes are
computed is the strategy's matter (`training.passes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.communication.tree import SumOverRanks, tree_sum
from training.data.types import Batch
from training.errors import SettingsError
from training.flops import FlopCount
from training.live_buffers import LiveBuffers
from training.objectives.objective import Objective, check_reach
from training.passes import Span, StepContext
from training.precision import Precision
from training.seeding import generators_of
from training.step_clock import step_clock
from training.strategies.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of a step on this rank.

    Attributes:
        sums: the objective's sums over the samples whose losses this rank computes, the loss first; in a pipeline those of the last stage.
        weight: the sum of their weights in the mean loss.
        samples: their number.
        gradient_norm: global norm before clipping; NaN or infinite if the step was bad.
        applied: the weights were updated.
        forward_seconds, backward_seconds: of the device (`training.step_clock`); backward ends with this rank's own gradients, and
            includes the part of the all-reduce that overlaps.
        communication_seconds: then waiting for the peers' gradients (`training.exposed_communication`); in a pipeline everything between
            the passes, its idle time too (`training.strategies.schedule`).
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
        """Sum of the losses that this rank has computed."""
        return self.sums[0]


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
        sum_over_ranks: SumOverRanks = dist.all_reduce,
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
            sum_over_ranks: of the weights of the objective.
            flops: counts those of the first micro-batch.
            is_compiled: the strategy's model is compiled.
        """
        self.strategy = strategy
        self.precision = precision
        self._clip_norm = clip_norm
        self._clock = step_clock(device)
        self._context = StepContext(
            objective=objective,
            precision=precision,
            device=device,
            clock=self._clock,
            run_seed=seed,
            rank=rank,
            world=world,
            sum_over_ranks=sum_over_ranks,
            flops=flops,
            is_compiled=is_compiled,
            generators=generators_of(strategy.module, objective),
        )
        self._weights = _weights_of(strategy.module)
        self._passes = strategy.passes(self._context)
        self._buffers = LiveBuffers(strategy.module) if keeps_buffers else None
        self._kept: dict[str, Tensor] = {}

    def run(self, step: int, micro_batches: list[Batch], *, global_count: int) -> StepResult:
        """Do optimizer step `step` (1-based) on this rank's `micro_batches` of a global batch of `global_count` samples.

        A step whose gradient is not finite leaves weights and buffers as they are and has `applied` False.
        """
        self._clock.restart()
        self.strategy.optimizer.zero_grad(set_to_none=True)
        self._keep_buffers()
        counted = micro_batches if self._passes.has_losses else []
        weight, total = self._weigh(counted, micro_batches, global_count)
        try:
            done = self._passes.run(step, micro_batches, total=total)
        except BaseException:
            self._restore_buffers()  # for what is kept of the step before
            _check_weights(self._weights)  # which may be why
            raise
        check_reach(self._context.objective, has_gradients=self.strategy.has_gradients)
        _check_weights(self._weights)
        norm, applied = self.strategy.update(self.precision, self._clip_norm)
        if not applied:
            self._restore_buffers()
        return StepResult(
            # Read here and not per micro-batch, like the clock: reading the norm has already synchronized with the device.
            sums=self._sums(done.sums),
            weight=float(weight),
            samples=sum(batch.count for batch in counted),
            gradient_norm=norm,
            applied=applied,
            forward_seconds=self._seconds(done.forward),
            backward_seconds=self._seconds(done.backward),
            communication_seconds=self._seconds(done.communication),
            optimizer_seconds=self._clock.seconds_since(done.ended),
        )

    def _keep_buffers(self) -> None:
        for name, live in self._buffers.now() if self._buffers is not None else ():
            kept = self._kept.get(name)
            if kept is None or kept.shape != live.shape or kept.dtype != live.dtype:
                self._kept[name] = live.detach().clone()
            else:
                kept.copy_(live)

    @torch.no_grad()
    def _restore_buffers(self) -> None:
        """Write what was kept into the buffers that there are now; one of another shape stays."""
        for name, live in self._buffers.now() if self._buffers is not None else ():
            if (kept := self._kept.get(name)) is not None and kept.shape == live.shape:
                live.copy_(kept)

    def _sums(self, measured: list[tuple[Tensor, ...]]) -> list[float]:
        if not measured:
            return [0.0] * len(self._context.objective.sums)
        return [tree_sum([float(value) for value in column]) for column in zip(*measured, strict=True)]

    def _seconds(self, spans: list[Span]) -> float:
        return sum(self._clock.seconds(began, ended) for began, ended in spans)

    def _weigh(
        self, counted: list[Batch], micro_batches: list[Batch], global_count: int
    ) -> tuple[Tensor | int, Tensor | int]:
        """The weight of the samples whose losses this rank computes in the mean loss, and that of the global batch."""
        context = self._context
        weights = [context.objective.weight(context.targets(batch)) for batch in micro_batches]
        known = [weight for weight in weights if weight is not None]
        if not known:
            return sum(batch.count for batch in counted), global_count
        all_known = tree_sum([weight.double() for weight in known])
        own = all_known if counted else torch.zeros_like(all_known)
        total = own.clone()
        if context.world > 1:
            context.sum_over_ranks(total)
        # Where nothing counts, the sum of the losses is 0, and so is the gradient.
        return own, torch.where(total > 0, total, 1.0).float()


@dataclass(frozen=True, kw_only=True)
class _Weight:
    """A parameter as the optimizer knows it, and where the model has it."""

    name: str
    parameter: nn.Parameter
    is_trainable: bool
    kept_in: Mapping[str, object]
    key: str


def _weights_of(module: nn.Module) -> list[_Weight]:
    return [
        _Weight(
            name=f"{path}.{key}".lstrip("."),
            parameter=one,
            is_trainable=one.requires_grad,
            kept_in=part._parameters,  # noqa: SLF001 - reading an attribute of a module takes ten times as long
            key=key,
        )
        for path, part in module.named_modules()
        for key, one in part.named_parameters(recurse=False)
    ]


def _check_weights(weights: list[_Weight]) -> None:
    """Check that the model has the parameters of the start, and that those without a gradient then have none now.

    The optimizer does not have others.

    Raises:
        SettingsError: the model has replaced or unfrozen one.
    """
    for weight in weights:
        if weight.kept_in.get(weight.key) is not weight.parameter:
            raise SettingsError(
                f"model.name: {weight.name} is not the parameter any more that it was when the model was built; the optimizer has that "
                "one, and would never change another",
                remedy="change it in place, under torch.no_grad(), or compute what is used instead in forward()",
            )
        if weight.parameter.requires_grad and not weight.is_trainable:
            raise SettingsError(
                f"model.name: {weight.name} was frozen (requires_grad=False) when the model was built and is not any more; the optimizer "
                "has the weights that were trainable at the start, and would never change it",
                remedy="build the model with the weight trainable, and compute its part under torch.no_grad() until it is to change",
            )
