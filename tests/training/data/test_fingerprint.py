"""The fingerprint changes with everything that it covers, and with nothing else."""

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
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY.view(np.uint64)}, id="array type"),
        pytest.param({"dataset": "x", "size": 3}, {"a": ARRAY[:6], "b": ARRAY[6:]}, id="array cut in two"),
    ],
)
def test_a_change_changes_the_fingerprint(
    description: dict[str, OptionValue], arrays: dict[str, NDArray[np.generic]]
) -> None:
    assert fingerprint(description, arrays) != BASE


def test_neither_order_of_keys_nor_memory_layout_changes_the_fingerprint() -> None:
    strided = np.repeat(ARRAY, 2)[::2]
    assert fingerprint({"size": 3, "dataset": "x"}, {"a": strided}) == BASE
