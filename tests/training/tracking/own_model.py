"""A model of a user's own whose forward pass depends on values, so that it cannot be traced."""

from __future__ import annotations

from torch import Tensor, nn

from training.data.types import SampleSpec


class Branching(nn.Module):
    """Takes one way for bright inputs and another for dark ones."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.shape[0] * spec.shape[1] * spec.shape[2], spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images (n, channels, height, width) to logits (n, classes)."""
        logits: Tensor = self.head(inputs.flatten(1))
        return logits if float(inputs.sum()) > 0 else -logits


def make(spec: SampleSpec) -> nn.Module:
    """The factory."""
    return Branching(spec)
