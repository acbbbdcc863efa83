"""Which output of the model stands for which label."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.classes import CLASSES_FILE, number_classes
from training.errors import DataError


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (np.array([1, 0, 2, 1]), [1, 0, 2, 1], ()),
        (np.array([3, 1, 3]), [1, 0, 1], ("1", "3")),
        (np.array([10_000_000_019, 10_000_000_003]), [1, 0], ("10000000003", "10000000019")),
        (np.array([10, 9]), [1, 0], ("9", "10")),
        (np.array(["1", "01", "10", "010"]), [2, 0, 3, 1], ("01", "010", "1", "10")),
    ],
    ids=["from-0", "a-gap", "identifiers", "in-their-order", "leading-zeros"],
)
def test_there_is_an_output_for_each_class_and_no_other(
    labels: NDArray[np.int64] | NDArray[np.str_], numbers: list[int], names: tuple[str, ...]
) -> None:
    found = number_classes(labels, train=len(labels), what="column label")
    assert (found.numbers.tolist(), found.count, found.names) == (numbers, len(set(numbers)), names)
    assert json.loads(found.files[CLASSES_FILE]) == list(names or map(str, range(found.count)))
    assert bool(found.notes) == bool(names)


def test_classes_that_training_lacks_and_negative_ones_are_refused() -> None:
    for labels, said in (
        (np.array([4, 5, 7]), "column label has classes that .*: 7\n"),
        (np.array([0, -1]), "class -1\n"),
    ):
        with pytest.raises(DataError, match=said):
            number_classes(labels, train=2, what="column label")
    assert number_classes(np.array([0, 2, 1]), train=2, what="column label").count == 3
