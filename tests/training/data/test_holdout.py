"""Stratified hold-out."""

from __future__ import annotations

import numpy as np
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
def test_the_fraction_of_each_class_is_rounded_to_a_sample(labels: NDArray[np.int64], fraction: float) -> None:
    _, held = hold_out(labels, fraction)
    for label in range(7):
        size = int((labels == label).sum())
        assert abs(int((labels[held] == label).sum()) - size * fraction) <= 0.5 + 1e-9


def test_the_held_out_samples_never_change_between_versions() -> None:
    """A resumed run must evaluate on the same samples, and must not have trained on them."""
    assert hold_out(np.arange(20) % 2, 0.3)[1].tolist() == [6, 7, 14, 17, 18, 19]
