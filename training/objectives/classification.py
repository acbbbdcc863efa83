"""Classification: cross entropy and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from observability.objective_metrics import Metric
from training.data.mixup import MixedSplit
from training.data.types import SampleSpec, Split
from training.errors import SettingsError
from training.objectives.metrics import CLASSIFICATION
from training.objectives.objective import Objective, check_range, check_shape, check_type
from training.objectives.options import ClassificationOptions


class Classification(Objective):
    """One class per sample, from logits of shape (count, classes).

    Targets are classes, int64 of shape (count,), or, mixed, probabilities of shape (count, classes).
    """

    sums: ClassVar[tuple[str, ...]] = ("loss", "correct")
    metrics: ClassVar[tuple[Metric, ...]] = CLASSIFICATION
    ranked_by: ClassVar[str] = "accuracy"

    def __init__(self, classes: int, options: ClassificationOptions) -> None:
        self._classes = classes
        self._options = options

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sum of the cross entropies, computed in float32, and the number of correct samples."""
        return self._measure(outputs, targets)

    def _measure(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_shape("classification", outputs, (self._classes,))
        loss = cross_entropy(
            outputs.float(),
            targets,
            weight=weights,
            reduction="sum",
            label_smoothing=self._options.label_smoothing,
        )
        return loss, (outputs.detach().argmax(dim=1) == _classes_of(targets)).sum()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """Mean loss, and accuracy from 0 to 1."""
        return {"loss": means["loss"], "accuracy": means["correct"]}

    def check_targets(self, targets: Tensor, spec: SampleSpec) -> None:
        """Classes are int64, below the number of outputs."""
        check_type("classification", targets, dtype=torch.int64, shape=())
        check_range(targets, spec.outputs, what="the class")

    def training_split(self, split: Split) -> Split:
        """Mixed by `mixup`."""
        if not self._options.mixup:
            return split
        return MixedSplit(split, alpha=self._options.mixup, classes=self._classes)

    def for_evaluation(self) -> Objective:
        """Without label smoothing."""
        plain = self._options.model_copy(update={"label_smoothing": 0.0})
        return type(self)(self._classes, plain)


class WeightedClassification(Classification):
    """Classification with a weight for each class: the loss is the weighted mean, the accuracy counts all samples alike."""

    sums: ClassVar[tuple[str, ...]] = ("loss", "correct", "samples")

    def __init__(self, classes: int, options: ClassificationOptions) -> None:
        super().__init__(classes, options)
        self._weights = torch.tensor(options.class_weights)

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The weighted sum of the cross entropies, the number of correct samples, and that of all samples."""
        return *self._measure(outputs, targets, self._weights_on(targets)), torch.tensor(len(targets))

    def weight(self, targets: Tensor) -> Tensor:
        """The sum of the weights of the samples' classes."""
        weights = self._weights_on(targets)
        return (targets @ weights).sum() if targets.is_floating_point() else weights[targets].sum()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """The loss over the weights, the accuracy over the samples."""
        return {"loss": means["loss"], "accuracy": means["correct"] / means["samples"]}

    def _weights_on(self, targets: Tensor) -> Tensor:
        return self._weights.to(targets.device, non_blocking=True)


def classification(spec: SampleSpec, options: ClassificationOptions) -> Classification:
    """Builds the objective for the dataset's classes.

    Raises:
        SettingsError: there is not one weight for each class.
    """
    if not options.class_weights:
        return Classification(spec.outputs, options)
    if len(options.class_weights) != spec.outputs:
        raise SettingsError(
            f"objective.options.class_weights has {len(options.class_weights)} weights for {spec.outputs} classes",
            remedy="give one weight for each class, in the order of the classes",
        )
    return WeightedClassification(spec.outputs, options)


def _classes_of(targets: Tensor) -> Tensor:
    """The class of each sample; of a mixed one the larger part's."""
    return targets.argmax(dim=1) if targets.is_floating_point() else targets
