"""Change points in a series of results."""

from __future__ import annotations

import numpy as np
import pytest

from observability.benchmarks.gate.change_points import change_points


def _noisy(levels: list[tuple[int, float]], *, noise: float, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    return [level * float(np.exp(generator.normal(0, noise))) for runs, level in levels for _ in range(runs)]


def test_a_short_or_constant_series_has_none() -> None:
    assert change_points([]) == []
    assert change_points([1.0, 1.0, 2.0, 2.0, 2.0]) == []
    assert change_points([1.0] * 30) == []


@pytest.mark.parametrize("level", [0.9, 1.1])
def test_a_level_that_changes_by_a_tenth_is_found_where_it_changes(level: float) -> None:
    found = [change_points(_noisy([(12, 1.0), (8, level)], noise=0.02, seed=seed)) for seed in range(20)]
    assert sum(points == [12] for points in found) >= 19


def test_two_changes_are_found_oldest_first() -> None:
    assert change_points(_noisy([(10, 1.0), (10, 1.2), (10, 0.9)], noise=0.02, seed=1)) == [10, 20]


def test_noise_has_none_in_nineteen_of_twenty_series() -> None:
    found = [change_points(_noisy([(20, 1.0)], noise=0.05, seed=seed)) for seed in range(40)]
    assert sum(points == [] for points in found) >= 38


def test_one_outlier_is_no_change_of_level() -> None:
    values = _noisy([(20, 1.0)], noise=0.01, seed=3)
    values[9] *= 1.5
    assert change_points(values) == []
