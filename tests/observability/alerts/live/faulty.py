"""A model that takes its time."""

from __future__ import annotations

import time

from torch import Tensor, nn

from training.data.types import SampleSpec
from training.models.mlp import mlp
from training.models.options import MlpOptions

FAULTY_RANK = 1

PACE_SECONDS = 0.1
"""Of each forward pass, whatever it computes: most of a step, so that a busy machine changes the shares of a step little."""


class _Paced(nn.Module):
    """A small network with a forward pass of a fixed time."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self._network = mlp(spec, MlpOptions(hidden=(16,)))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            time.sleep(PACE_SECONDS)
        output: Tensor = self._network(inputs)
        return output


def paced(spec: SampleSpec) -> nn.Module:
    """The model."""
    return _Paced(spec)
