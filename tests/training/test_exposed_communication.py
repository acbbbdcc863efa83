"""Exposed communication, measured by two real ranks of which one is slow: the other waits, and its own work does not look longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from tests.training.test_step import batch
from training.config.schema import PrecisionSettings
from training.exposed_communication import when_gradients_are_computed
from training.launch.task import RankPlace
from training.objectives.classification import Classification
from training.objectives.options import ClassificationOptions
from training.precision import Precision
from training.step import StepResult, StepRunner
from training.strategies.data_parallel import DataParallel

CPU = torch.device("cpu")
PAUSE = 0.5
"""Seconds that the slow rank takes longer."""


class _Backward(torch.autograd.Function):
    """The identity, which calls a function in its backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, call: Callable[[], object]) -> Tensor:  # noqa: ANN401 - as torch declares it
        ctx.call = call
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        ctx.call()
        return gradients[0], None


class _Model(nn.Module):
    def __init__(self, in_backward: Callable[[], object]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.in_backward = in_backward

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = _Backward.apply(self.first(inputs), self.in_backward)
        outputs: Tensor = self.second(hidden)
        return outputs


def _step(place: RankPlace, *, micro_batches: int) -> StepResult:
    """A step in which rank 1 goes on with its last backward pass only after rank 0 has all its own gradients, and then pauses."""
    torch.set_num_threads(1)
    passes = 0

    def in_backward() -> None:
        nonlocal passes
        passes += 1
        if passes < micro_batches:
            return
        store = dist.distributed_c10d._get_default_store()
        if place.rank == 0:
            # Queued after the step's own callback, and before the one of DDP that waits.
            Variable._execution_engine.queue_callback(lambda: store.set("rank 0 waits", ""))
        else:
            store.wait(["rank 0 waits"])
            time.sleep(PAUSE)

    with in_group(place):
        runner = StepRunner(
            strategy=DataParallel(_Model(in_backward), lambda m: torch.optim.SGD(m.parameters(), lr=1.0), device=CPU),
            objective=Classification(3, ClassificationOptions()),
            precision=Precision(PrecisionSettings(), CPU),
            device=CPU,
            clip_norm=None,
            seed=0,
            rank=place.rank,
            world=place.world,
            keeps_buffers=False,
        )
        return runner.run(1, [batch(4 * micro, 4) for micro in range(micro_batches)], global_count=8 * micro_batches)


def test_a_slow_peer_is_communication_of_the_rank_that_waits_and_work_of_its_own() -> None:
    first, second = on_ranks(2, _step, micro_batches=2)
    assert first.communication_seconds >= PAUSE
    assert second.backward_seconds >= PAUSE


def test_the_callback_runs_once_when_all_gradients_are_there() -> None:
    weight = torch.ones(3, requires_grad=True)
    seen: list[Tensor | None] = []
    loss = (weight * 2).sum()
    when_gradients_are_computed(loss, lambda: seen.append(weight.grad))
    loss.backward()  # type: ignore[no-untyped-call]
    assert len(seen) == 1
    assert seen[0] is not None
    assert seen[0].tolist() == [2.0, 2.0, 2.0]
