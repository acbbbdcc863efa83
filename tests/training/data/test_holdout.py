"""Holding samples out, class by class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.data.holdout import hold_out

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(lambda labels: np.array(labels, dtype=np.int64))
FRACTIONS = st.floats(0, 0.99)


@given(labels=LABELS, fraction=FRACTIONS)
def test_every_sample_is_either_kept_or_held_out(labels: NDArray[np.int64], fraction: float) -> None:
    kept, held = hold_out(labels, fraction)
    assert sorted([*kept, *held]) == list(range(len(labels)))


@given(labels=LABELS, fraction=FRACTIONS)
def test_each_class_gives_its_fraction_to_the_nearest_sample(labels: NDArray[np.int64], fraction: float) -> None:
    _, held = hold_out(labels, fraction)
    for label in range(7):
        size = int((labels == label).sum())
        assert abs(int((labels[held] == label).sum()) - size * fraction) <= 0.5 + 1e-9


def test_a_class_is_sampled_throughout_and_not_only_at_its_start() -> None:
    _, held = hold_out(np.zeros(1000, dtype=np.int64), 0.2)
    assert 400 < held.mean() < 600


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_split_is_the_same_on_every_call(fraction: float) -> None:
    labels = np.arange(500) % 7
    np.testing.assert_array_equal(hold_out(labels, fraction)[1], hold_out(labels, fraction)[1])


def test_a_sample_held_out_at_a_small_fraction_is_held_out_at_a_larger_one() -> None:
    labels = np.arange(500) % 7
    assert set(hold_out(labels, 0.1)[1]) < set(hold_out(labels, 0.3)[1])
