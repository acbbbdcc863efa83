"""An objective and a dataset as a user writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from observability.objective_metrics import Metric
from training.config.schema import DataSettings
from training.data.fingerprint import fingerprint
from training.data.tables import TableSplit
from training.data.types import DataBundle, SampleSpec
from training.objectives.classification import Classification
from training.objectives.language_modelling import IGNORED
from training.objectives.objective import Objective
from training.objectives.options import ClassificationOptions


class Quantile(Objective):
    """The pinball loss of one quantile, and how many targets are below the prediction."""

    sums: ClassVar[tuple[str, ...]] = ("loss", "below")
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="loss"), Metric(name="below", is_ratio=True))

    def __init__(self, spec: SampleSpec, *, share: float = 0.5) -> None:
        del spec
        self._share = share

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        error = targets - outputs
        return torch.maximum(self._share * error, (self._share - 1) * error).sum(), (error < 0).sum()


class SureAccuracy(Classification):
    """The accuracy is no number while the model is too unsure: a ratio of no cases."""

    def __init__(self, spec: SampleSpec | int, options: ClassificationOptions | None = None) -> None:
        super().__init__(spec if isinstance(spec, int) else spec.outputs, options or ClassificationOptions())

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        found = super().report(means)
        return found if found["loss"] < 0.5 else {**found, "accuracy": math.nan}


class NoGradient(Quantile):
    """Its loss has no gradient."""

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return super().measure(outputs.detach(), targets)


class Aside(Quantile):
    """Its loss has a gradient, but not of the model's weights."""

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        loss, below = super().measure(outputs.detach(), targets)
        return loss + torch.zeros((), requires_grad=True), below


class NotSummed(Quantile):
    """Its loss is one number for each sample."""

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return (targets - outputs).square(), torch.zeros(())


class OneShort(Quantile):
    """It returns a sum less than it has names."""

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return super().measure(outputs, targets)[:1]


class NothingComputes(Quantile):
    """It names a metric without a sum."""

    metrics: ClassVar[tuple[Metric, ...]] = (*Quantile.metrics, Metric(name="above"))


class NoLoss(Quantile):
    """It reports something else than its loss."""

    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="below", is_ratio=True),)


class RankedByNothing(Quantile):
    """It ranks checkpoints by a metric that it does not report."""

    ranked_by: ClassVar[str] = "above"


class LeftOut(Quantile):
    """Its report leaves out a metric."""

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        return {"loss": means["loss"]}


def padded_text(settings: DataSettings) -> DataBundle:
    """Sequences of eight tokens, of which the last ones do not count; in some sequences none does."""
    del settings
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 12, (400, 9), generator=generator)
    lengths = torch.randint(0, 9, (400, 1), generator=generator)
    lengths[::7] = 0
    inputs, targets = tokens[:, :-1], tokens[:, 1:].where(torch.arange(8) < lengths, IGNORED)
    train, validation, test = (
        TableSplit(inputs[rows], targets[rows]) for rows in (slice(0, 250), slice(250, 300), slice(300, 400))
    )
    return DataBundle(
        name="padded_text",
        spec=SampleSpec(shape=(8,), outputs=12, vocabulary=12, is_sequence=True),
        train=train,
        validation=validation,
        test=test,
        fingerprint=fingerprint({}, {"tokens": tokens.numpy()}),
    )


def too_narrow(spec: SampleSpec) -> nn.Module:
    """A model with one output less than there are classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, spec.outputs - 1))
