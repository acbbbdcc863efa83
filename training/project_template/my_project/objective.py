"""The objective: what the training minimizes and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from observability.objective_metrics import Metric
from training.data.types import SampleSpec
from training.objectives.objective import Objective


class CostOfErrors(Objective):
    """Binary cross-entropy in which a missed tumour costs more than a false alarm.

    Args:
        spec: shapes of the dataset's inputs and outputs.
        missed_cost: cost of a missed tumour in false alarms; set by `objective.options`.
    """

    # `measure` returns these sums over the samples of a batch. The trainer adds them up over batches and ranks and divides by the
    # number of samples, so results do not depend on the batch size or the number of ranks.
    sums: ClassVar[tuple[str, ...]] = ("loss", "correct", "malignant", "missed")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(name="loss"),
        Metric(name="accuracy", is_ratio=True, higher_is_better=True),
        Metric(name="missed", label="missed malignant tumours", is_ratio=True),
    )
    ranked_by: ClassVar[str] = "accuracy"

    def __init__(self, spec: SampleSpec, *, missed_cost: float = 2.0) -> None:
        del spec
        self.missed_cost = missed_cost

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """Returns the sums over a batch; the gradient is that of the first."""
        logits = outputs.float()
        costs = 1 + (self.missed_cost - 1) * targets
        loss = (costs * binary_cross_entropy_with_logits(logits, targets, reduction="none")).sum()
        is_malignant, is_found = targets > 0.5, logits > 0
        return loss, (is_found == is_malignant).sum(), is_malignant.sum(), (is_malignant & ~is_found).sum()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """Returns the metrics, from the sums divided by the number of samples."""
        malignant = means["malignant"]
        return {
            "loss": means["loss"],
            "accuracy": means["correct"],
            "missed": means["missed"] / malignant if malignant else 0.0,
        }
