"""A small pre-norm transformer over tokens: a causal language model, or a classifier of whole sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.options import TransformerOptions
from training.models.parts import Part

_INITIAL_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2 (Radford et al., 2019)."""


class Block(nn.Module):
    """Self-attention and a feed-forward layer of four times the width, each after a layer norm and added to its input."""

    def __init__(self, options: TransformerOptions, *, is_causal: bool) -> None:
        super().__init__()
        width = options.width
        self.heads = options.heads
        self.is_causal = is_causal
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps (n, length, width) to the same shape."""
        split = self.attention_in(self.attention_norm(inputs)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        hidden = inputs + self.dropout(self.attention_out(attended.transpose(1, 2).flatten(2)))
        output: Tensor = hidden + self.dropout(self.feed_forward(hidden))
        return output


class Transformer(nn.Module):
    """Token and position embeddings, blocks, layer norm and a linear head; a language model's head shares the embedding's weights."""

    def __init__(self, spec: SampleSpec, options: TransformerOptions) -> None:
        super().__init__()
        self.is_sequence = spec.is_sequence
        self.tokens = nn.Embedding(spec.vocabulary, options.width)
        self.positions = nn.Parameter(torch.empty(spec.shape[0], options.width))
        self.dropout = nn.Dropout(options.dropout)
        self.blocks = nn.Sequential(*(Block(options, is_causal=spec.is_sequence) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, spec.outputs, bias=False)
        self.apply(_initialize)
        nn.init.normal_(self.positions, std=_INITIAL_STD)
        if spec.is_sequence and spec.outputs == spec.vocabulary:
            self.head.weight = self.tokens.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps tokens (n, length) to logits (n, length, outputs), or (n, outputs) of the mean over the positions."""
        return self._classify(self.blocks(self._embed(inputs)))

    def parts(self) -> list[Part]:
        """The embedding, each block, and the head."""
        blocks = [Part(names=(f"blocks.{number}",), forward=block) for number, block in enumerate(self.blocks)]
        return [
            Part(names=("tokens", "positions"), forward=self._embed),
            *blocks,
            Part(names=("norm", "head"), forward=self._classify),
        ]

    def _embed(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(self.tokens(inputs) + self.positions[: inputs.shape[1]])
        return hidden

    def _classify(self, hidden: Tensor) -> Tensor:
        features = self.norm(hidden)
        logits: Tensor = self.head(features if self.is_sequence else features.mean(dim=1))
        return logits


def transformer(spec: SampleSpec, options: TransformerOptions) -> Transformer:
    """Builds a `Transformer`, causal if the model returns one output for each position.

    Raises:
        SettingsError: the samples are not tokens.
    """
    if not spec.vocabulary or len(spec.shape) != 1:
        raise SettingsError(
            f"model.name=transformer expects tokens, but the samples are numbers of shape {spec.shape}",
            remedy="set model.name=mlp, or a data.dataset of text",
        )
    return Transformer(spec, options)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
