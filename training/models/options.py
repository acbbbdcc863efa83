"""The own options of each model: what may stand under `model.options`. Light: imported by the command line."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from infra.spec.section import Section
from training.config.schema import Fraction


class MlpOptions(Section):
    """Options of `mlp`."""

    hidden: tuple[PositiveInt, ...] = Field(
        (512,), description="Widths of the hidden layers, input side first; [] is softmax regression."
    )
    dropout: Fraction = Field(0.0, description="Share of each hidden layer's outputs that training drops.")


class SimpleCnnOptions(Section):
    """Options of `simple_cnn`."""

    width: PositiveInt = Field(
        16, description="Channels of the first stage; the second has twice, the third four times."
    )
    dropout: Fraction = Field(0.1, description="Share of the pooled features that training drops.")


class ResNetOptions(Section):
    """Options of `resnet18`, `resnet50` and `resnet101`."""

    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet",
        description="imagenet (7x7 convolution of stride 2, max-pooling: a quarter of the size) | "
        "cifar (3x3, full size, for images of 32 x 32 or so).",
    )
    zero_init_residual: bool = Field(
        False, description="Start each block as the identity: zero scale in its last batch norm (arXiv:1706.02677)."
    )
