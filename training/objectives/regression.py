"""Regression: squared, absolute or Huber loss, and the usual errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from observability.objective_metrics import Metric
from training.data.types import SampleSpec
from training.objectives.metrics import REGRESSION
from training.objectives.objective import Objective, check_shape, check_type
from training.objectives.options import RegressionOptions


class Regression(Objective):
    """Values, float32 of shape (count, outputs), from outputs of the same shape. Errors are means over samples and outputs."""

    sums: ClassVar[tuple[str, ...]] = ("loss", "absolute", "squared")
    metrics: ClassVar[tuple[Metric, ...]] = REGRESSION

    def __init__(self, outputs: int, options: RegressionOptions) -> None:
        self._outputs = outputs
        self._options = options

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sums of the losses and of the absolute and the squared errors, each the mean over a sample's outputs, in float32."""
        check_shape("regression", outputs, (self._outputs,))
        outputs = outputs.float()
        error = outputs - targets
        absolute, squared = error.abs().sum() / self._outputs, error.square().sum() / self._outputs
        match self._options.loss:
            case "squared":
                loss = squared
            case "absolute":
                loss = absolute
            case "huber":
                loss = huber_loss(outputs, targets, reduction="sum", delta=self._options.delta) / self._outputs
        return loss, absolute.detach(), squared.detach()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """Mean loss, mean absolute error, and the root of the mean squared error."""
        return {
            "loss": means["loss"],
            "mean_absolute_error": means["absolute"],
            "root_mean_squared_error": math.sqrt(means["squared"]),
        }

    def check_targets(self, targets: Tensor, spec: SampleSpec) -> None:
        """Values are float32."""
        check_type("regression", targets, dtype=torch.float32, shape=(spec.outputs,))


def regression(spec: SampleSpec, options: RegressionOptions) -> Regression:
    """Builds the objective for the dataset's values."""
    return Regression(spec.outputs, options)
