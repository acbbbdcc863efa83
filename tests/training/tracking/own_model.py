"""A model with data-dependent control flow, which torch.export cannot export."""

from __future__ import annotations

from torch import Tensor, nn

from training.data.types import SampleSpec


class Branching(nn.Module):
    """Negates the logits of dark inputs."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.shape[0] * spec.shape[1] * spec.shape[2], spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images (n, channels, height, width) to logits (n, classes)."""
        logits: Tensor = self.head(inputs.flatten(1))
        return logits if float(inputs.sum()) > 0 else -logits
