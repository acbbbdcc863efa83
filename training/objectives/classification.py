"""Classification: cross entropy and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy


class Classification:
    """One class per sample, from logits of shape (count, classes)."""

    sums = ("loss", "correct")

    def measure(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The sum of the cross entropies, computed in float32, and the number of correct samples."""
        loss = cross_entropy(outputs.float(), labels, reduction="sum")
        return loss, (outputs.detach().argmax(dim=1) == labels).sum()

    def metrics(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """Mean loss, and accuracy from 0 to 1."""
        loss, correct = sums
        return {"loss": loss / samples, "accuracy": correct / samples}
