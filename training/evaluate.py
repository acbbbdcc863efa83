"""Exact evaluation of a split by all ranks: the metrics are, bit for bit, those of rank 0's model evaluated by one process.

The ranks share the split's batches and not its samples, so a batch is the same at every world size. The sums of each batch are
gathered and added in the order of the batches, in float64. What remains is what computes a batch: another number of threads,
another device or another version of torch may round differently.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from training.data.loader import EvalLoader
from training.objectives.objective import Objective, check_sums
from training.precision import Precision
from training.strategies.strategy import Strategy
from training.weight_average import WeightAverage


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The objective's metrics over all `samples` of a split, and the wall time that it took.

    `is_asynchronous` says whether another process has measured it, from a checkpoint, while the ranks went on.
    """

    metrics: dict[str, float]
    samples: int
    seconds: float = field(compare=False)
    is_asynchronous: bool = field(default=False, compare=False)


@torch.no_grad()
def evaluate(
    strategy: Strategy,
    loader: EvalLoader,
    *,
    objective: Objective,
    precision: Precision,
    device: torch.device,
    world: int,
    average: WeightAverage | None = None,
) -> EvaluationResult:
    """Evaluate the bare model on this rank's batches, or its average, and combine them with those of the other `world` - 1 ranks.

    What is evaluated has rank 0's buffers on every rank. The model ends in training mode.
    """
    started = time.perf_counter()
    objective = objective.for_evaluation()
    with evaluated_weights(strategy, average):
        sums = _sums(strategy, loader, objective=objective, precision=precision, device=device)
    if world > 1:
        dist.all_reduce(sums)  # a row is zero on all ranks but one
    *totals, weight, samples = (sum(column) for column in zip(*sums.tolist(), strict=True))
    return EvaluationResult(
        metrics=objective.summarize(totals, weight), samples=int(samples), seconds=time.perf_counter() - started
    )


@contextmanager
def evaluated_weights(strategy: Strategy, average: WeightAverage | None) -> Iterator[None]:
    """The context in which the model has what is evaluated: the average, if there is one, and rank 0's buffers on every rank."""
    with nullcontext() if average is None else average.in_model():
        strategy.synchronize_buffers()
        yield


def _sums(
    strategy: Strategy,
    loader: EvalLoader,
    *,
    objective: Objective,
    precision: Precision,
    device: torch.device,
) -> Tensor:
    """The objective's sums, weight and samples of each batch of the split, float64 (batches, sums + 2); other ranks' rows are 0."""
    sums = torch.zeros(loader.batches, len(objective.sums) + 2, dtype=torch.float64, device=device)
    model = strategy.module
    model.eval()
    own = 0
    for row, batch in zip(sums[loader.rank :: loader.world], loader, strict=True):
        inputs = batch.inputs.to(device, non_blocking=True)
        targets = batch.targets[: batch.count].to(device, non_blocking=True)
        with precision.autocast():
            outputs = strategy.infer(inputs)
        own += 1
        if outputs is None:
            continue
        measured = objective.measure(outputs[: batch.count], targets)
        check_sums(objective, measured, needs_gradient=False)
        weight = objective.weight(targets)
        for index, value in enumerate((*measured, batch.count if weight is None else weight, batch.count)):
            row[index] = value
    if strategy.computes_together and own < loader.rounds:
        with precision.autocast():
            strategy.infer(loader.sample().inputs.to(device))
    model.train()
    return sums
