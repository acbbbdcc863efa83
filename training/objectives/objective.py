"""The protocol of objectives, used by the step, the evaluation and the reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Objective(Protocol):
    """A loss and the metrics reported with it.

    Everything is a sum over samples, so that it adds up over micro-batches, batches and ranks; a metric is computed from the sums last.
    An objective has no state.
    """

    @property
    def sums(self) -> tuple[str, ...]:
        """Names of the sums that `measure` returns; the loss is the first."""
        ...

    def measure(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The sums over a batch as scalar tensors, the first of which is differentiated.

        Args:
            outputs: what the model returned for the rows that count, shape (count, ...), in the dtype of the forward pass.
            labels: shape (count,). `count` may be 0.
        """
        ...

    def metrics(self, sums: Sequence[float], samples: int) -> dict[str, float]:
        """The reported metrics by name, from sums over `samples` samples; `loss` is one of them.

        Only `loss` and `accuracy` have a field in the run's log; callbacks see all.
        """
        ...
