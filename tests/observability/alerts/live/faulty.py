"""A model and a dataset whose faults begin and end while the run goes on: each lasts as long as a file exists."""

from __future__ import annotations

import time
from pathlib import Path

import torch.distributed as dist
from torch import Tensor, nn

from tests.training.profiling.bottlenecks import digits_after
from training.config.schema import DataSettings
from training.data.types import DataBundle, SampleSpec
from training.models.mlp import mlp
from training.models.options import MlpOptions

FAULTY_RANK = 1

PACE_SECONDS = 0.1
"""Of each forward pass, whatever it computes: most of a step, so that a busy machine changes the shares of a step little."""

DATA_SECONDS = 0.08
"""Of reading a batch while data is scarce: 40 % of a step, with which goodput stays above the limits of its own alerts."""

STRAGGLER_SECONDS = 0.15
"""That the slow rank adds: it has two fifths of the speed of its peer, and less than 60 % of the median of the two."""


class _Paced(nn.Module):
    """A small network with a forward pass of a fixed time, and of a longer one on one rank while the file `slow_rank` exists."""

    def __init__(self, spec: SampleSpec, slow_rank: Path) -> None:
        super().__init__()
        self._network = mlp(spec, MlpOptions(hidden=(16,)))
        self._slow_rank = slow_rank

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            is_slow = dist.get_rank() == FAULTY_RANK and self._slow_rank.exists()
            time.sleep(PACE_SECONDS + (STRAGGLER_SECONDS if is_slow else 0))
        output: Tensor = self._network(inputs)
        return output


def paced(spec: SampleSpec, *, slow_rank: str) -> nn.Module:
    """The model; `slow_rank` is the file."""
    return _Paced(spec, Path(slow_rank))


def digits(settings: DataSettings, *, slow_data: str) -> DataBundle:
    """The dataset; `slow_data` is the file."""
    file = Path(slow_data)

    def wait() -> None:
        if file.exists():
            time.sleep(DATA_SECONDS)

    return digits_after(settings, wait)
