"""The update of a step where every rank has the gradients, or its own parts of them, when the backward passes are done."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from training.precision import Precision


class HasGradients(Protocol):
    """Has gradients that are averaged over the ranks, and the optimizer of their weights."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the model's parameters."""
        ...

    def gradient_norm(self) -> Tensor:
        """The L2 norm of the gradients of all parameters, a scalar."""
        ...

    def clip_gradients(self, limit: float, norm: Tensor) -> None:
        """Scale gradients of norm `norm` down to `limit`."""
        ...


def clip_and_step(gradients: HasGradients, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
    """Clip and update; see `Strategy.update`."""
    optimizer = gradients.optimizer
    precision.unscale_(optimizer)
    norm_tensor = gradients.gradient_norm()
    norm = float(norm_tensor)
    if not math.isfinite(norm):
        # Under fp16 the scaler must see the step to lower its scale; it skips the update itself.
        return norm, precision.step(optimizer) if precision.scales_gradients else False
    if clip_norm is not None and norm > clip_norm:
        gradients.clip_gradients(clip_norm, norm_tensor)
    return norm, precision.step(optimizer)
