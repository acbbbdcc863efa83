"""The schedule of a pipeline: which rank computes which micro-batch of which stage when, by torch's own implementations.

| strategy.schedule | order | idle share of a step with equal stages |
|---|---|---|
| 1f1b | one forward, one backward pass in turn (Narayanan et al., arXiv:2006.09503) | (p - 1) / (m + p - 1) |
| interleaved | the same over v stages on each rank (Narayanan et al., arXiv:2104.04473) | (p - 1) / (v m + p - 1) |

for p ranks and m micro-batches. A rank measures its idle time: what is between its passes, with the transfers between stages and the sum
of the gradients over the groups, is the `communication_seconds` of a step.

The buffers of a schedule have one shape, so there is one schedule for each number of rows; loaders pad the micro-batches of a step to
the same number (`TrainLoader`, `equal_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    PipelineStageInfo,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

from training.data.types import Batch
from training.passes import PassesDone, Span, StepContext
from training.step_clock import StepClock

Schedule = PipelineScheduleSingle | PipelineScheduleMulti
ForwardContext = Callable[[PipelineStageInfo], AbstractContextManager[None]]
Loss = Callable[[Tensor, Tensor], Tensor]


class StageRunner:
    """The stages of this rank, and schedules over them.

    Attributes:
        stages: number of stages of the pipeline.
        group: its ranks.
        device: of this rank.
        is_first, is_last: whether this rank has the first stage, the last one.
    """

    def __init__(
        self, *, modules: dict[int, nn.Module], stages: int, group: dist.ProcessGroup, device: torch.device
    ) -> None:
        """Args: `modules` are this rank's stages by number."""
        self.stages = stages
        self.group = group
        self.device = device
        self.is_first = 0 in modules
        self.is_last = stages - 1 in modules
        self._modules = modules
        self._inference: dict[int, Schedule] = {}

    def training_schedule(
        self, micro_batches: int, *, loss: Loss, clock: StepClock, spans: PassesDone, context: ForwardContext
    ) -> Schedule:
        """A schedule of forward and backward passes; collective.

        Args:
            micro_batches: of every step.
            loss: of outputs and targets, on the last stage.
            clock: marks the passes.
            spans: gets them.
            context: of every forward pass.
        """
        stages = [
            _MeasuredStage(module, number, self.stages, self.device, group=self.group)
            for number, module in self._modules.items()
        ]
        for stage in stages:
            stage.measure(clock, spans)
            stage.register_forward_context(context)
        if len(stages) == 1:
            return Schedule1F1B(stages[0], micro_batches, loss_fn=loss, scale_grads=False)
        return ScheduleInterleaved1F1B(list(stages), micro_batches, loss_fn=loss, scale_grads=False)

    def infer(self, inputs: Tensor) -> Tensor | None:
        """Compute the forward pass of a batch; collective. Returns the outputs on the rank of the last stage."""
        rows = len(inputs)
        if rows not in self._inference:
            stages = [
                PipelineStage(module, number, self.stages, self.device, group=self.group)
                for number, module in self._modules.items()
            ]
            self._inference[rows] = (
                ScheduleGPipe(stages[0], 1) if len(stages) == 1 else ScheduleInterleaved1F1B(list(stages), 1)
            )
        schedule = self._inference[rows]
        outputs: Tensor | None = schedule.step(inputs) if self.is_first else schedule.step()
        return outputs


class PipelinePasses:
    """The passes of a step through a pipeline (`training.passes.Passes`)."""

    def __init__(
        self, runner: StageRunner, context: StepContext, *, skeleton: nn.Module, sum_gradients: Callable[[], None]
    ) -> None:
        """Args: `skeleton` is the whole model without values; `sum_gradients` sums this rank's over the groups."""
        self._runner = runner
        self._context = context
        self._skeleton = skeleton
        self._sum_gradients = sum_gradients
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._step = 0
        self._total: Tensor | int = 1
        self._measured: list[tuple[Tensor, ...]] = []
        self._spans = PassesDone()

    @property
    def has_losses(self) -> bool:
        """Whether this rank has the last stage."""
        return self._runner.is_last

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """Run the schedule, and sum the gradients over the groups."""
        context, runner, spans = self._context, self._runner, self._spans
        self._step, self._total = step, total
        for marks in (spans.forward, spans.backward, self._measured):
            marks.clear()
        if context.flops is not None:
            context.flops.count_apart(self._skeleton, micro_batches[0].inputs)
        inputs = [(batch.inputs.to(context.device, non_blocking=True),) for batch in micro_batches]
        targets = [context.targets(batch) for batch in micro_batches]
        began = context.clock.mark()
        self._schedule(len(micro_batches), rows=len(micro_batches[0].inputs)).step(
            arg_mbs=inputs if runner.is_first else None,
            target_mbs=targets if runner.is_last else None,
            return_outputs=False,
        )
        self._sum_gradients()
        ended = context.clock.mark()
        return PassesDone(
            # A new schedule measures once more, to learn the shapes.
            sums=self._measured[-len(micro_batches) :],
            forward=list(spans.forward),
            backward=list(spans.backward),
            communication=_between(sorted([*spans.forward, *spans.backward]), began=began, ended=ended),
            ended=ended,
        )

    def _schedule(self, micro_batches: int, *, rows: int) -> Schedule:
        if (micro_batches, rows) not in self._schedules:
            self._schedules[micro_batches, rows] = self._runner.training_schedule(
                micro_batches, loss=self._loss, clock=self._context.clock, spans=self._spans, context=self._forward
            )
        return self._schedules[micro_batches, rows]

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """This micro-batch's share of the mean loss over the global batch; `targets` has the samples that count."""
        loss, *others = self._context.measure(outputs, targets)
        self._measured.append((loss.detach(), *others))
        return loss / self._total

    @contextmanager
    def _forward(self, info: PipelineStageInfo) -> Iterator[None]:
        """The context of a forward pass: its precision, and random numbers by (seed, step, micro-batch, stage of this copy)."""
        context = self._context
        if not info.is_metadata_inference:
            copy = context.rank // dist.get_world_size(self._runner.group)
            context.seed(self._step, info.microbatch_index, copy * self._runner.stages + info.stage_index)
        with context.precision.autocast():
            yield


class _MeasuredStage(PipelineStage):
    """Marks its passes on the clock of the step."""

    def measure(self, clock: StepClock, spans: PassesDone) -> None:
        """Set the clock, and what gets the spans."""
        self._clock = clock
        self._spans = spans

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's
        """The forward pass of a micro-batch."""
        began = self._clock.mark()
        try:
            outputs = super().forward_one_chunk(*args, **kwargs)
        except RuntimeError as error:
            # torch wraps the model's own error in one that prints its inputs.
            raise error.__cause__ or error from None
        self._spans.forward.append((began, self._clock.mark()))
        return outputs

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - torch's
        """The backward pass of a micro-batch."""
        began = self._clock.mark()
        super().backward_one_chunk(*args, **kwargs)
        self._spans.backward.append((began, self._clock.mark()))


def _between(spans: list[Span], *, began: int, ended: int) -> list[Span]:
    """What is left of a span without those in it, in order."""
    edges = [began, *(mark for span in spans for mark in span), ended]
    return list(zip(edges[::2], edges[1::2], strict=True))
