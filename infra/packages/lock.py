"""Reads locks: lists of packages with their versions and hashes, as uv writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_COPY_IN_WHEEL = Path(__file__).with_name("requirements.lock")
_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Package(NamedTuple):
    """A locked package; `hashes` are the sha256 of all its distributions."""

    name: str
    version: str
    hashes: tuple[str, ...]


def trainer_lock() -> Path:
    """The lock of the trainer's packages: of the checkout, or the copy in the wheel."""
    return _COPY_IN_WHEEL if _COPY_IN_WHEEL.is_file() else Path(__file__).resolve().parents[2] / "requirements.lock"


def read_lock(lock: Path) -> Iterator[Package]:
    """The packages of a lock file.

    Raises:
        OSError: the file cannot be read.
    """
    for entry in re.split(r"\n(?=[a-z0-9])", lock.read_text(encoding="utf-8")):
        if match := _ENTRY.match(entry):
            yield Package(match["name"], match["version"], tuple(_HASH.findall(entry)))
