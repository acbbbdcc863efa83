"""The names of classes, kept with the run and its model (`DataBundle.files`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

CLASSES_FILE: Final = "classes.json"
"""A list of the names in the order of the model's outputs."""


def classes_file(names: Sequence[str], *, count: int) -> dict[str, bytes]:
    """The file of the names; numbers stand for classes that have none.

    Args:
        names: of all classes, or none.
        count: number of classes.
    """
    return {CLASSES_FILE: json.dumps(list(names) or list(map(str, range(count)))).encode()}
