"""Wait for a running `make engines`, so that the tests that need its programs are not skipped."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from contextlib import suppress

from infra.lifecycle.sandbox.modules import build_lock


def is_build_running(environment: Mapping[str, str]) -> bool:
    """Whether `make engines` is running.

    Args:
        environment: determines the cache (`modules.cache_root`).
    """
    try:
        _take_lock(environment, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def await_build(environment: Mapping[str, str]) -> None:
    """Wait until no build is running, whether it succeeds or fails."""
    _take_lock(environment, fcntl.LOCK_SH)


def _take_lock(environment: Mapping[str, str], operation: int) -> None:
    """Lock the file that a build holds, and release it."""
    with suppress(FileNotFoundError), build_lock(environment).open("rb") as lock:
        fcntl.flock(lock, operation)
