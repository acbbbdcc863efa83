"""A file that one rank writes to the shared file system, and all ranks read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_FILE_BYTES = 4 << 20


def write(path: Path) -> str:
    """Write random bytes and flush them to the file system; returns their sha256."""
    content = os.urandom(_FILE_BYTES)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> str:
    """The sha256 of the file as this node sees it; why not, if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"not read: {error.strerror}"
