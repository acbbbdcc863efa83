"""Which samples are held out of a set that comes without a split of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.order import Stream, philox


def hold_out(labels: NDArray[np.int64], fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits samples into kept and held-out ones, class by class, the same way on every run.

    No seed goes in: were the split a function of the run's seed, runs of different seeds could not be compared, and
    tuning would have seen every test sample.

    Args:
        labels: class of each sample, shape (n,).
        fraction: share held out of each class, rounded to whole samples.

    Returns:
        Indices of the kept and of the held-out samples, each ascending.
    """
    keys = philox(seed=0, epoch=0, stream=Stream.HOLDOUT).random_raw(len(labels))
    by_class = np.lexsort((keys, labels))
    counts = np.bincount(labels)
    place_in_class = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_per_class = np.floor(counts * fraction + 0.5)
    is_held = np.empty(len(labels), dtype=np.bool_)
    is_held[by_class] = place_in_class < np.repeat(held_per_class, counts)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)
