"""Language modelling: cross entropy per token, perplexity and accuracy of the next token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from observability.objective_metrics import Metric
from training.data.types import SampleSpec
from training.objectives.metrics import LANGUAGE_MODELLING
from training.objectives.objective import Objective, check_range, check_shape, check_type
from training.objectives.options import LanguageModellingOptions

IGNORED = -100
"""Target of a position that does not count, such as padding; the default `ignore_index` of torch's cross entropy."""


class LanguageModelling(Objective):
    """The next token at every position, from logits of shape (count, length, tokens). Targets: int64 of shape (count, length)."""

    sums: ClassVar[tuple[str, ...]] = ("loss", "correct")
    metrics: ClassVar[tuple[Metric, ...]] = LANGUAGE_MODELLING
    ranked_by: ClassVar[str] = "perplexity"
    unit: ClassVar[str] = "tokens"

    def __init__(self, spec: SampleSpec, options: LanguageModellingOptions) -> None:
        self._spec = spec
        self._options = options

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sum of the cross entropies, computed in float32, and the number of correct tokens."""
        check_shape("language_modelling", outputs, (*self._spec.shape, self._spec.outputs))
        loss = cross_entropy(
            outputs.float().flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self._options.label_smoothing,
        )
        return loss, (outputs.detach().argmax(dim=-1) == targets).sum()

    def weight(self, targets: Tensor) -> Tensor:
        """The number of tokens that count."""
        return (targets != IGNORED).sum()

    def report(self, means: Mapping[str, float]) -> dict[str, float]:
        """Loss per token in nats, its exponential, and the share of tokens that are predicted first."""
        loss = means["loss"]
        perplexity = math.exp(loss) if loss < math.log(1e308) else math.inf
        return {"loss": loss, "perplexity": perplexity, "accuracy": means["correct"]}

    def check_targets(self, targets: Tensor, spec: SampleSpec) -> None:
        """One token for each position of the input."""
        check_type("language_modelling", targets, dtype=torch.int64, shape=spec.shape)
        check_range(targets, spec.outputs, what="the token", ignored=IGNORED)

    def for_evaluation(self) -> Objective:
        """Without label smoothing."""
        return LanguageModelling(self._spec, LanguageModellingOptions())


def language_modelling(spec: SampleSpec, options: LanguageModellingOptions) -> LanguageModelling:
    """Builds the objective for the dataset's tokens."""
    return LanguageModelling(spec, options)
