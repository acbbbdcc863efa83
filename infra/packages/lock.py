"""Reads locks: lists of packages with their versions and hashes, as uv writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker

_COPY_IN_WHEEL = Path(__file__).with_name("requirements-image.lock")
_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Package(NamedTuple):
    """A locked package; `hashes` are the sha256 of all its distributions."""

    name: str
    version: str
    hashes: tuple[str, ...]


def trainer_lock() -> Path:
    """The lock of the trainer image's packages: of the checkout, or the copy in the wheel."""
    return _COPY_IN_WHEEL if _COPY_IN_WHEEL.is_file() else Path(__file__).resolve().parents[2] / _COPY_IN_WHEEL.name


def read_lock(lock: Path, markers: Mapping[str, str] | None = None) -> Iterator[Package]:
    """The packages of a lock file that a Python installs.

    Args:
        lock: the file; for some packages it has several versions, or none for some platforms, by environment markers.
        markers: values of the markers that differ from those of this Python, e.g. `{"python_full_version": "3.12.0"}`.

    Raises:
        OSError: the file cannot be read.
    """
    for entry in re.split(r"\n(?=[a-z0-9])", lock.read_text(encoding="utf-8")):
        match = _ENTRY.match(entry)
        if match and (match["marker"] is None or Marker(match["marker"]).evaluate(dict(markers or {}))):
            yield Package(match["name"], match["version"], tuple(_HASH.findall(entry)))
