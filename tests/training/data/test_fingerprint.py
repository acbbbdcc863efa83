"""The fingerprint depends on everything that it covers, and on nothing else."""

from __future__ import annotations

import numpy as np

from training.config.schema import OptionValue
from training.data.fingerprint import fingerprint

ARRAY = np.arange(12, dtype=np.int64)
BASE = fingerprint({"dataset": "x", "size": 3}, {"a": ARRAY})


def test_every_part_of_the_input_changes_the_fingerprint() -> None:
    description: dict[str, OptionValue] = {"dataset": "x", "size": 3}
    others = [
        fingerprint({"dataset": "y", "size": 3}, {"a": ARRAY}),
        fingerprint({"dataset": "x"}, {"a": ARRAY}),
        fingerprint(description, {"b": ARRAY}),
        fingerprint(description, {"a": ARRAY[::-1]}),
        fingerprint(description, {"a": ARRAY.reshape(3, 4)}),
        fingerprint(description, {"a": ARRAY.view(np.uint64)}),
        fingerprint(description, {"a": ARRAY[:6], "b": ARRAY[6:]}),
    ]
    assert len({BASE, *others}) == 1 + len(others)


def test_key_order_and_memory_layout_do_not_change_the_fingerprint() -> None:
    strided = np.repeat(ARRAY, 2)[::2]
    assert fingerprint({"size": 3, "dataset": "x"}, {"a": strided}) == BASE
