"""Exact evaluation of a split, sharded over the ranks: every sample counted once, sums reduced in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from training.data.loader import EvalLoader
from training.precision import Precision


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """Mean loss and accuracy (0 to 1) over all `samples` of a split."""

    loss: float
    accuracy: float
    samples: int


@torch.no_grad()
def evaluate(
    model: nn.Module, loader: EvalLoader, *, precision: Precision, device: torch.device, world: int
) -> EvaluationResult:
    """Evaluate `model`, the bare module and not its DDP wrapper, on this rank's share and sum over the ranks.

    Batch norm uses its running statistics, which DDP keeps equal on all ranks. The model is left in training mode.
    """
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    model.eval()
    for batch in loader:
        inputs = batch.inputs.to(device, non_blocking=True)
        labels = batch.labels[: batch.count].to(device, non_blocking=True)
        with precision.autocast():
            logits = model(inputs)[: batch.count].float()
        sums[0] += cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(dim=1) == labels).sum()
        sums[2] += batch.count
    model.train()
    if world > 1:
        dist.all_reduce(sums)
    loss, correct, samples = sums.tolist()
    return EvaluationResult(loss=loss / samples, accuracy=correct / samples, samples=int(samples))
