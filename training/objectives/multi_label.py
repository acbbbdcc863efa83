"""Multi-label classification: binary cross entropy, and precision, recall and F1 over all labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from observability.objective_metrics import Metric
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.objectives.metrics import MULTI_LABEL
from training.objectives.objective import Objective, check_shape, check_type
from training.objectives.options import MultiLabelOptions


class MultiLabel(Objective):
    """Any number of labels per sample, from logits of shape (count, labels). Targets: 0 or 1, float32 of the same shape.

    The loss of a sample is the mean over its labels. Precision, recall and F1 are micro-averages: labels are counted over all samples.
    """

    sums: ClassVar[tuple[str, ...]] = ("loss", "predicted", "present", "both")
    metrics: ClassVar[tuple[Metric, ...]] = MULTI_LABEL
    ranked_by: ClassVar[str] = "f1"

    def __init__(self, labels: int, options: MultiLabelOptions) -> None:
        self._labels = labels
        self._limit = math.log(options.threshold / (1 - options.threshold))
        self._positive_weights = torch.tensor(options.positive_weights) if options.positive_weights else None

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sum of the losses in float32, and the numbers of labels predicted, present, and both."""
        check_shape("multi_label", outputs, (self._labels,))
        weights = self._positive_weights
        loss = binary_cross_entropy_with_logits(
            outputs.float(),
            targets,
            pos_weight=None if weights is None else weights.to(targets.device, non_blocking=True),
            reduction="sum",
        )
        predicted, present = outputs.detach() >= self._limit, targets > 0.5
        return loss / self._labels, predicted.sum(), present.sum(), (predicted & present).sum()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """Mean loss and micro-averages; 0 where a ratio has no denominator."""
        predicted, present, both = means["predicted"], means["present"], means["both"]
        return {
            "loss": means["loss"],
            "f1": _ratio(2 * both, predicted + present),
            "precision": _ratio(both, predicted),
            "recall": _ratio(both, present),
        }

    def check_targets(self, targets: Tensor, spec: SampleSpec) -> None:
        """Labels are float32."""
        check_type("multi_label", targets, dtype=torch.float32, shape=(spec.outputs,))


def multi_label(spec: SampleSpec, options: MultiLabelOptions) -> MultiLabel:
    """Builds the objective for the dataset's labels.

    Raises:
        SettingsError: there is not one weight for each label.
    """
    if options.positive_weights and len(options.positive_weights) != spec.outputs:
        raise SettingsError(
            f"objective.options.positive_weights has {len(options.positive_weights)} weights for {spec.outputs} labels",
            remedy="give one weight for each label, in the order of the labels",
        )
    return MultiLabel(spec.outputs, options)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
