"""The base class of objectives, used by the step, the evaluation and the reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import nan
from typing import ClassVar

import torch
from torch import Tensor

from observability.objective_metrics import LOSS, Metric
from training.data.types import SampleSpec, Split
from training.errors import SettingsError


class Objective(ABC):
    """A loss and the metrics reported with it.

    Everything is a sum over samples, so that it adds up over micro-batches, batches and ranks. The sums are divided by the sum of the
    weights last: the gradient is that of the weighted mean over the *global* batch, for any world size. An objective has no state.

    Attributes:
        sums: names of the sums that `measure` returns; the loss is the first.
        metrics: what is reported, `loss` included. By default a metric is the mean of the sum of its name.
        ranked_by: name of the metric that ranks checkpoints unless `checkpoint.best_metric` names another.
        unit: what the throughput counts: `samples`, or what `weight` counts, e.g. `tokens`.
    """

    sums: ClassVar[tuple[str, ...]] = ("loss",)
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS,)
    ranked_by: ClassVar[str] = "loss"
    unit: ClassVar[str] = "samples"

    @abstractmethod
    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sums over a batch as scalar tensors, the first of which is differentiated.

        Args:
            outputs: what the model returned for the samples that count, shape (count, ...), in the dtype of the forward pass.
            targets: shape (count, ...). `count` may be 0.
        """

    def weight(self, targets: Tensor) -> Tensor | None:
        """The weight of a batch in the mean loss, a scalar tensor, e.g. its number of tokens; None: its number of samples.

        It depends on the targets alone, because it is summed over the ranks before the forward pass.
        """
        del targets
        return None

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """The reported metrics by name, from the sums divided by the sum of the weights."""
        return {metric.name: means[metric.name] for metric in self.metrics}

    def check_targets(self, targets: Tensor, spec: SampleSpec) -> None:
        """Refuse a dataset that the objective cannot be computed on, before the run starts.

        Args:
            targets: of the first samples of a split, shape (n, ...).
            spec: the dataset's samples.

        Raises:
            SettingsError: the targets have another dtype or shape.
        """
        del targets, spec

    def training_split(self, split: Split) -> Split:
        """The samples to train on; an objective may mix samples."""
        return split

    def for_evaluation(self) -> Objective:
        """The objective that evaluates, which leaves out what only regularizes the training."""
        return self

    def summarize(self, sums: Sequence[float], weight: float) -> dict[str, float]:
        """The reported metrics, from sums over a batch or a split and the sum of its weights; NaN if nothing counts.

        Raises:
            SettingsError: `report`, which may be a user's own, leaves out one of `metrics`.
        """
        means = {name: value / weight if weight else nan for name, value in zip(self.sums, sums, strict=True)}
        reported = self.report(means)
        if missing := [metric.name for metric in self.metrics if metric.name not in reported]:
            raise SettingsError(
                f"objective {type(self).__name__}: report leaves out {', '.join(missing)} of `metrics`",
                remedy="return every metric of `metrics` from `report`, NaN where it cannot be computed",
            )
        return reported


def check_metrics(objective: Objective) -> None:
    """Check the names that an objective declares, which may be a user's own.

    Raises:
        SettingsError: `metrics` lacks the loss or what ranks checkpoints, or has one that nothing computes.
    """
    names = [metric.name for metric in objective.metrics]
    computed = objective.sums if type(objective).report is Objective.report else names
    for name, what in (("loss", "the loss"), (objective.ranked_by, "the metric of `ranked_by`")):
        if name not in names:
            raise SettingsError(
                f"objective {type(objective).__name__}: `metrics` lacks {name}, {what}; it has {', '.join(names) or 'none'}",
                remedy=f"add Metric(name={name!r}) to `metrics`",
            )
    if missing := [name for name in names if name not in computed]:
        raise SettingsError(
            f"objective {type(objective).__name__}: nothing computes the metrics {', '.join(missing)}",
            remedy="add a sum of that name to `sums` and to what `measure` returns, or compute it in `report`",
        )


def check_sums(objective: Objective, sums: object, *, needs_gradient: bool) -> None:
    """Check what `measure` returned, which may be a user's own.

    Raises:
        SettingsError: it is no tuple of one scalar tensor per sum, or the loss has no gradient.
    """
    name = type(objective).__name__
    expected = (
        f"objective {name}: measure must return {len(objective.sums)} scalar tensors: {', '.join(objective.sums)}"
    )
    if not isinstance(sums, tuple) or len(sums) != len(objective.sums):
        got = f"a tuple of {len(sums)}" if isinstance(sums, tuple) else f"{type(sums).__name__}"
        raise SettingsError(f"{expected}; it returned {got}", remedy="return one sum for each name in `sums`")
    for label, value in zip(objective.sums, sums, strict=True):
        if not isinstance(value, Tensor) or value.ndim:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise SettingsError(f"{expected}; {label} is {got}", remedy="sum over all dimensions: tensor.sum()")
    if needs_gradient and not sums[0].requires_grad:
        raise SettingsError(
            f"objective {name}: the loss has no gradient, so no weight would change",
            remedy="compute it from the outputs with differentiable operations, without .detach(), .item() or no_grad",
        )


def check_reach(objective: Objective, *, has_gradients: bool) -> None:
    """Check after the backward passes of a step that one of the model's weights has a gradient.

    Raises:
        SettingsError: no weight has one, so none would change.
    """
    if not has_gradients:
        raise SettingsError(
            f"objective {type(objective).__name__}: the gradient of the loss reaches no weight of the model",
            remedy="compute the loss from the outputs of the model, and those from its weights, without .detach() or no_grad",
        )


def check_shape(objective: str, outputs: Tensor, expected: tuple[int, ...]) -> None:
    """Check the outputs of a model, which may be a user's own.

    Raises:
        SettingsError: they have another shape than (count, *expected).
    """
    if tuple(outputs.shape[1:]) != expected:
        raise SettingsError(
            f"model.name: the model returns {tuple(outputs.shape)} for {outputs.shape[0]} samples; objective {objective} "
            f"needs ({', '.join(('samples', *map(str, expected)))})",
            remedy="correct the last layer of the model, name another of its outputs in model.output, or choose another objective.name",
        )


def check_type(objective: str, targets: Tensor, *, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Check the targets of samples.

    Raises:
        SettingsError: they have another dtype, or another shape than (n, *shape), or one is no number.
    """
    if targets.dtype != dtype or tuple(targets.shape[1:]) != shape:
        raise SettingsError(
            f"objective.name={objective} needs targets of {dtype} and shape {shape} for each sample; those of the dataset are "
            f"of {targets.dtype} and shape {tuple(targets.shape[1:])}",
            remedy="choose another data.dataset or another objective.name",
        )
    if targets.is_floating_point() and (bad := _first(~targets.isfinite())) is not None:
        raise SettingsError(
            f"objective.name={objective} needs numbers; sample {bad} has the target {targets[bad].tolist()}",
            remedy="leave samples without a target out, or choose an objective of your own that does",
        )


def check_range(numbers: Tensor, count: int, *, what: str, ignored: int | None = None) -> None:
    """Check that whole numbers of samples are from 0 to `count` - 1, or `ignored`.

    Raises:
        SettingsError: one is not; names its sample.
    """
    is_outside = (numbers < 0) | (numbers >= count)
    if ignored is not None:
        is_outside &= numbers != ignored
    if (bad := _first(is_outside)) is not None:
        value = numbers[bad][is_outside[bad]].flatten()[0].item()
        raise SettingsError(
            f"sample {bad} has {what} {value}, outside 0 to {count - 1}",
            remedy="correct the sample, or the number in the SampleSpec of the dataset",
        )


def _first(is_bad: Tensor) -> int | None:
    """The first sample with something that is bad, from (n, ...)."""
    found = is_bad.flatten(1).any(1) if is_bad.ndim > 1 else is_bad
    return int(found.nonzero()[0]) if bool(found.any()) else None
