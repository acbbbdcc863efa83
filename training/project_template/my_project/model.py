"""The model."""

from __future__ import annotations

import math

from torch import Tensor, nn

from training.data.types import SampleSpec


class Net(nn.Module):
    """Two layers with batch norm and dropout.

    Args:
        spec: shapes of the dataset's inputs and outputs.
        width: size of the hidden layer. This and what follows is set by `model.options`.
        dropout: probability that a hidden value is left out of a training step.
    """

    def __init__(self, spec: SampleSpec, *, width: int = 32, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(spec.shape), width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, spec.outputs),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Computes the logits, shape (n, outputs), of inputs, shape (n, *spec.shape)."""
        logits: Tensor = self.layers(inputs)
        return logits
