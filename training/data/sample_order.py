"""The order in which an epoch reads the samples of a split: a random permutation, unless the split has an order of its own.

Shuffling within a window is what WebDataset and tf.data do with a buffer of samples. Here the window consists of whole groups that are
stored together, so that the order is known before anything is read: any position of an epoch can be the first to be read, by any rank.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.data.order import epoch_order, windowed_order
from training.data.types import Split


@runtime_checkable
class OrderedSplit(Split, Protocol):
    """A `Split` that determines the order of an epoch, because reading in any order would be slow."""

    def epoch_order(self, *, seed: int, epoch: int) -> NDArray[np.int64]:
        """Returns the sample id at each position of an epoch: a permutation of 0 ... len - 1, shape (len,).

        It must be a pure function: every rank and every resume computes it again.
        """


def sample_order(split: Split, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the sample id at each position of an epoch of a split, shape (len(split),)."""
    if isinstance(split, OrderedSplit):
        return split.epoch_order(seed=seed, epoch=epoch)
    return epoch_order(seed=seed, epoch=epoch, size=len(split))


class WindowedSplit:
    """A split whose epochs read a few groups of samples at a time."""

    def __init__(self, split: Split, *, groups: NDArray[np.int64], window: int) -> None:
        """Wraps a split.

        Args:
            split: the samples.
            groups: number of the group that each sample is stored in, ascending, shape (len(split),).
            window: groups that are read at a time.
        """
        self._split = split
        # Without those that have no sample in this split.
        self._groups = np.unique(groups, return_inverse=True)[1].astype(np.int64, copy=False)
        self._window = window

    @property
    def draws(self) -> int:
        """Uniforms that augmentation needs per sample."""
        return self._split.draws

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._split)

    def epoch_order(self, *, seed: int, epoch: int) -> NDArray[np.int64]:
        """The groups in random order, and the samples of each window of them in random order; see `OrderedSplit`."""
        return windowed_order(seed=seed, epoch=epoch, groups=self._groups, window=self._window)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Reads samples; see `Split.read`."""
        return self._split.read(ids, uniforms)
