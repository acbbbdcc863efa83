"""Room for a build: refused before it starts, because an engine that fills a disk leaves it full."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from infra.lifecycle.image.layers import size_text
from infra.spec.errors import RefusedError


class Need(NamedTuple):
    """Room that something needs: `size` in bytes, in `folder` or the nearest folder above it that exists."""

    folder: Path
    size: int
    purpose: str


def require_room(needs: Iterable[Need]) -> None:
    """Refuse file systems that are too small for what they are to hold together.

    Raises:
        RefusedError: names each file system, what it has to hold and what is missing.
    """
    by_device: dict[int, list[Need]] = defaultdict(list)
    for need in needs:
        folder = _existing(need.folder)
        by_device[folder.stat().st_dev].append(need._replace(folder=folder))
    short = [line for found in by_device.values() for line in _shortage(found)]
    if short:
        raise RefusedError(
            f"not enough room for the images:{''.join(short)}",
            remedy="free it; `buildah rmi --prune`, `podman image prune` and `docker builder prune` remove what builds left",
        )


def _shortage(needs: list[Need]) -> Iterable[str]:
    free, needed = shutil.disk_usage(needs[0].folder).free, sum(need.size for need in needs)
    if free < needed:
        parts = ", ".join(f"{size_text(need.size)} for {need.purpose}" for need in needs)
        yield f"\n  {needs[0].folder}: {size_text(free)} free, {size_text(needed)} needed: {parts}"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
