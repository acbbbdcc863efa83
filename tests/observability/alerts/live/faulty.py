"""A model and a dataset whose faults begin and end while the run goes on: each lasts as long as a file exists."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from training.config.schema import DataSettings
from training.data.digits import load_digits
from training.data.options import DigitsOptions
from training.data.types import DataBundle, SampleSpec, Split
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


class _Scarce:
    """A split whose batches take longer to read while the file `slow_data` exists."""

    def __init__(self, split: Split, slow_data: Path) -> None:
        self._split = split
        self._slow_data = slow_data

    @property
    def draws(self) -> int:
        return self._split.draws

    def __len__(self) -> int:
        return len(self._split)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        if self._slow_data.exists():
            time.sleep(DATA_SECONDS)
        return self._split.read(ids, uniforms)


def paced(spec: SampleSpec, *, slow_rank: str) -> nn.Module:
    """The model; `slow_rank` is the file."""
    return _Paced(spec, Path(slow_rank))


def digits(settings: DataSettings, *, slow_data: str) -> DataBundle:
    """The dataset; `slow_data` is the file."""
    bundle = load_digits(settings, DigitsOptions())
    return DataBundle(**{**vars(bundle), "train": _Scarce(bundle.train, Path(slow_data))})
