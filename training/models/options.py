"""The options of each model, set under `model.options`. Imports no torch, because the command line imports it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from infra.spec.section import Section
from training.config.values import Fraction


class MlpOptions(Section):
    """Options of `mlp`."""

    hidden: tuple[PositiveInt, ...] = Field(
        (512,), description="Widths of the hidden layers, first to last; [] is softmax regression."
    )
    dropout: Fraction = Field(0.0, description="Dropout probability of each hidden layer's outputs.")


class SimpleCnnOptions(Section):
    """Options of `simple_cnn`."""

    width: PositiveInt = Field(
        16, description="Channels of the first stage; the second has twice, the third four times as many."
    )
    dropout: Fraction = Field(0.1, description="Dropout probability of the pooled features.")


class RnnOptions(Section):
    """Options of `rnn`."""

    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm | gru.")
    embedding: PositiveInt = Field(64, description="Width of a token's embedding.")
    hidden: PositiveInt = Field(128, description="Width of the state of each direction.")
    layers: PositiveInt = Field(1, description="Number of recurrent layers.")
    bidirectional: bool = Field(True, description="Read the text in both directions.")
    dropout: Fraction = Field(
        0.1, description="Dropout probability after the embedding, between the layers and before the head."
    )


class TransformerOptions(Section):
    """Options of `transformer`."""

    width: PositiveInt = Field(128, description="Width of the residual stream; a multiple of heads.")
    layers: PositiveInt = Field(4, description="Number of blocks.")
    heads: PositiveInt = Field(4, description="Attention heads.")
    dropout: Fraction = Field(0.1, description="Dropout probability after the embedding and each part of a block.")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> TransformerOptions:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        return self


class ResNetOptions(Section):
    """Options of `resnet18`, `resnet50` and `resnet101`."""

    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet",
        description="imagenet (7x7 convolution with stride 2 and max-pooling, a quarter of the size) | "
        "cifar (3x3, full size, for images of about 32 x 32).",
    )
    zero_init_residual: bool = Field(
        False, description="Initialise each block to the identity: zero the last batch norm's scale (arXiv:1706.02677)."
    )
