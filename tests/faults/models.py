"""A model whose loss is NaN in one step, and which otherwise equals `simple_cnn`, weight for weight."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from training.data.types import SampleSpec
from training.models.simple_cnn import SimpleCnn


class _NotFinite(SimpleCnn):
    """Its logits are NaN in one training step of rank 0, unless the file `trace` exists, which it creates."""

    def __init__(self, spec: SampleSpec, *, step: int, trace: str) -> None:
        super().__init__(channels=spec.shape[0], classes=spec.outputs, width=16, dropout=0.25)
        self._steps_left = step
        self._trace = Path(trace)

    def _classify(self, features: Tensor) -> Tensor:
        logits = super()._classify(features)
        if self.training:
            self._steps_left -= 1
            is_first = not dist.is_initialized() or dist.get_rank() == 0
            if self._steps_left == 0 and is_first and not self._trace.exists():
                self._trace.touch()
                return logits * float("nan")
        return logits


def not_finite(spec: SampleSpec, *, step: int, trace: str) -> SimpleCnn:
    """A model whose loss is NaN once, in its `step`-th forward pass."""
    return _NotFinite(spec, step=step, trace=trace)
