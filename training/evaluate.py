"""Exact evaluation of a split, sharded over the ranks: every sample is counted once, sums are reduced in float64."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from training.data.loader import EvalLoader
from training.objectives.objective import Objective
from training.precision import Precision


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The objective's metrics over all `samples` of a split, and the wall time that it took."""

    metrics: dict[str, float]
    samples: int
    seconds: float = field(compare=False)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: EvalLoader,
    *,
    objective: Objective,
    precision: Precision,
    device: torch.device,
    world: int,
) -> EvaluationResult:
    """Evaluate `model`, the bare module, on this rank's share and sum over the ranks.

    Batch norm uses its running statistics, which are equal on all ranks. The model is left in training mode.
    """
    started = time.perf_counter()
    sums = torch.zeros(len(objective.sums) + 1, dtype=torch.float64, device=device)
    model.eval()
    for batch in loader:
        inputs = batch.inputs.to(device, non_blocking=True)
        labels = batch.labels[: batch.count].to(device, non_blocking=True)
        with precision.autocast():
            outputs = model(inputs)[: batch.count]
        for index, value in enumerate(objective.measure(outputs, labels)):
            sums[index] += value
        sums[-1] += batch.count
    model.train()
    if world > 1:
        dist.all_reduce(sums)
    *totals, samples = sums.tolist()
    return EvaluationResult(
        metrics=objective.metrics(totals, int(samples)), samples=int(samples), seconds=time.perf_counter() - started
    )
