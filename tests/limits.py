"""Limits on this process that stand for trouble with storage."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let writes fail behind the first `size` bytes of any file, as on a full disk.

    Around as little as can be, and never as a fixture: pytest writes files too, its own output among them.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
