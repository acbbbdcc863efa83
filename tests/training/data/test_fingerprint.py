"""The fingerprint depends on everything that it covers, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from training.config.schema import OptionValue
from training.data.fingerprint import fingerprint

ARRAY = np.arange(12, dtype=np.int64)
BASE = fingerprint({"dataset": "x", "size": 3}, {"a": ARRAY})


@pytest.mark.parametrize(
    ("description", "arrays"),
    [
        pytest.param({"dataset": "y", "size": 3}, {"a": ARRAY}, id="value"),
        pytest.param({"dataset": "x"}, {"a": ARRAY}, id="key"),
        pytest.param({"dataset": "x", "size": 3}, {"b": ARRAY}, id="array name"),
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY[::-1]}, id="array content"),
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY.reshape(3, 4)}, id="array shape"),
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY.view(np.uint64)}, id="array dtype"),
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY[:6], "b": ARRAY[6:]}, id="array split in two"),
    ],
)
def test_every_part_of_the_input_changes_the_fingerprint(
    description: dict[str, OptionValue], arrays: dict[str, NDArray[np.generic]]
) -> None:
    assert fingerprint(description, arrays) != BASE


def test_key_order_and_memory_layout_do_not_change_the_fingerprint() -> None:
    strided = np.repeat(ARRAY, 2)[::2]
    assert fingerprint({"size": 3, "dataset": "x"}, {"a": strided}) == BASE
