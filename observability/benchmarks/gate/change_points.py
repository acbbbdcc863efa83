"""Finds the runs at which a series of results changed its level.

Binary segmentation: the split of a segment with the largest standardized difference of means is a change point if few random orders of the
segment have a split that is as good, which a permutation test counts. Both parts are then searched in the same way. The test makes no
assumption about the distribution of the noise (Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
Multivariate Data", 2014, section 2.3, use the same test with another statistic).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_SEGMENT = 3
"""Runs on either side of a change point: fewer are judged as single results."""

_P_VALUE = 0.01
_PERMUTATIONS = 999

_Values = NDArray[np.float64]


def change_points(values: Sequence[float]) -> list[int]:
    """Positions at which a new level begins, ascending.

    Args:
        values: one value a run, the oldest first.
    """
    generator = np.random.default_rng(0)
    return sorted(_search(np.asarray(values, dtype=np.float64), 0, generator))


def _search(values: _Values, offset: int, generator: np.random.Generator) -> list[int]:
    if len(values) < 2 * MIN_SEGMENT:
        return []
    statistics = _split_statistics(values[None, :])[0]
    best = float(statistics.max())
    shuffled = generator.permuted(np.tile(values, (_PERMUTATIONS, 1)), axis=1)
    as_good = int((_split_statistics(shuffled).max(axis=1) >= best).sum())
    if (as_good + 1) / (_PERMUTATIONS + 1) > _P_VALUE:
        return []
    split = int(statistics.argmax()) + MIN_SEGMENT
    left = _search(values[:split], offset, generator)
    return [*left, offset + split, *_search(values[split:], offset + split, generator)]


def _split_statistics(orders: _Values) -> _Values:
    """The standardized difference of the means on both sides of each split.

    Args:
        orders: values, of shape (orders, runs).

    Returns:
        Shape (orders, splits); the first split is after `MIN_SEGMENT` runs, the last one before as many.
    """
    runs = orders.shape[1]
    left = np.arange(MIN_SEGMENT, runs - MIN_SEGMENT + 1)
    right = runs - left
    sums = np.cumsum(orders, axis=1)
    total = sums[:, -1:]
    means = sums[:, left - 1] / left, (total - sums[:, left - 1]) / right
    between = left * right / runs * (means[0] - means[1]) ** 2
    scatter = ((orders - total / runs) ** 2).sum(axis=1, keepdims=True)
    within = np.maximum(scatter - between, 1e-12)  # equal values have no scatter
    statistics: _Values = np.sqrt(between / within * (runs - 2))
    return statistics
