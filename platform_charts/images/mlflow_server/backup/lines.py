"""Lists in files: one JSON object per line, compressed with gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def write_lines(file: Path, lines: Iterable[Line]) -> tuple[int, int]:
    """Write a list; returns its length and the sum of its `bytes`."""
    entries = size = 0
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        for line in lines:
            stream.write(f"{json.dumps(line)}\n")
            entries, size = entries + 1, size + int(line["bytes"])
    return entries, size


def read_lines(file: Path) -> Iterator[Line]:
    """The objects of a list."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        for text in stream:
            line: Line = json.loads(text)
            yield line
