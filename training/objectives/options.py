"""The options of each objective, set under `objective.options`. Imports no torch, because the command line imports it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from infra.spec.section import Section


class ClassificationOptions(Section):
    """Options of `classification`."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Share of the target given to all classes equally (arXiv:1512.00567); in training only: the losses of validation "
        "and test are without it, so that runs can be compared.",
    )
    class_weights: tuple[PositiveFloat, ...] = Field(
        (), description="Weight of each class in the mean loss, e.g. against imbalance; [] weighs all samples equally."
    )
    mixup: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="Alpha of mixup (arXiv:1710.09412): each training sample is mixed with another one by a share drawn from "
        "Beta(alpha, alpha); 0 mixes nothing.",
    )


class LanguageModellingOptions(Section):
    """Options of `language_modelling`."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Share of the target given to all tokens equally; in training only, so that perplexity keeps its meaning.",
    )


class RegressionOptions(Section):
    """Options of `regression`."""

    loss: Literal["squared", "absolute", "huber"] = Field(
        "squared", description="squared | absolute | huber (squared near 0, absolute beyond delta)."
    )
    delta: PositiveFloat = Field(1.0, description="Error beyond which the Huber loss is linear.")


class MultiLabelOptions(Section):
    """Options of `multi_label`."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.5, description="Probability from which a label counts as predicted."
    )
    positive_weights: tuple[PositiveFloat, ...] = Field(
        (), description="Weight of each label's positive targets in the loss, e.g. for rare labels; [] is 1 for all."
    )
