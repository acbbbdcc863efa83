"""Waiting in tests for what another process or a server does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], *, seconds: float = 60) -> None:
    """Poll until something is so.

    Raises:
        AssertionError: not so after this time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so after {seconds:.0f} s"
        time.sleep(0.05)
