"""Stratified hold-out for datasets without a published split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.order import Stream, philox


def hold_out(labels: NDArray[np.int64], fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits samples into kept and held-out ones, class by class and identically in every run.

    The split does not depend on the run's seed: otherwise runs with different seeds could not be compared, and tuning
    over seeds would leak test samples into training.

    Args:
        labels: class of each sample, shape (n,).
        fraction: fraction of each class to hold out, rounded to whole samples.

    Returns:
        Indices of the kept and the held-out samples, each ascending.
    """
    keys = philox(seed=0, epoch=0, stream=Stream.HOLDOUT).random_raw(len(labels))
    by_class = np.lexsort((keys, labels))
    counts = np.bincount(labels)
    rank_in_class = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_per_class = np.floor(counts * fraction + 0.5)
    is_held = np.empty(len(labels), dtype=np.bool_)
    is_held[by_class] = rank_in_class < np.repeat(held_per_class, counts)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def split_rows(
    counts: tuple[int, int, int], labels: NDArray[np.int64], fraction: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows of train, validation and test of samples that are stored in this order, each ascending.

    Without samples of its own, validation is `fraction` of each class of train, and test is validation.

    Args:
        counts: samples stored for train, validation and test; 0: none.
        labels: class of each sample of train, shape (counts[0],).
        fraction: see `hold_out`.
    """
    train, validation, test = np.split(np.arange(sum(counts)), np.cumsum(counts)[:2])
    if not len(validation):
        train, validation = hold_out(labels, fraction)
    return train, validation, test if len(test) else validation
