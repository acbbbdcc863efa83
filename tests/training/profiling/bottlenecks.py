"""A dataset and models with a planted bottleneck."""

from __future__ import annotations

import time
from collections.abc import Callable

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


class _Slow:
    """A split that waits before it reads a batch."""

    def __init__(self, split: Split, wait: Callable[[], None]) -> None:
        self._split = split
        self._wait = wait

    @property
    def draws(self) -> int:
        return self._split.draws

    def __len__(self) -> int:
        return len(self._split)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        self._wait()
        return self._split.read(ids, uniforms)


def slow_digits(settings: DataSettings, *, seconds: float) -> DataBundle:
    """Digits whose training batches take `seconds` to read."""
    return digits_after(settings, lambda: time.sleep(seconds))


def digits_after(settings: DataSettings, wait: Callable[[], None]) -> DataBundle:
    """Digits of which no training batch is read before `wait` returns."""
    bundle = load_digits(settings, DigitsOptions())
    return DataBundle(**{**vars(bundle), "train": _Slow(bundle.train, wait)})


class _SlowRank(nn.Module):
    """A small network that sleeps in the forward pass of one rank."""

    def __init__(self, spec: SampleSpec, *, rank: int, seconds: float) -> None:
        super().__init__()
        self._network = mlp(spec, MlpOptions(hidden=(64,)))
        self._rank = rank
        self._seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and dist.is_initialized() and dist.get_rank() == self._rank:
            time.sleep(self._seconds)
        output: Tensor = self._network(inputs)
        return output


def slow_rank(spec: SampleSpec, *, rank: int, seconds: float) -> nn.Module:
    """A model whose rank `rank` takes `seconds` longer in each step."""
    return _SlowRank(spec, rank=rank, seconds=seconds)
