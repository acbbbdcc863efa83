"""Kubernetes while it is being built: its tests wait for a build that is under way, rather than being skipped."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from contextlib import suppress

from infra.lifecycle.sandbox.modules import build_lock


def is_being_built(environment: Mapping[str, str]) -> bool:
    """Whether somebody is building the programs of the control plane (`make engines`) at this moment.

    Args:
        environment: says where the cache is (`modules.cache_root`).
    """
    try:
        _take_lock(environment, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def await_build(environment: Mapping[str, str]) -> None:
    """Wait for a build's end, whether it succeeds or not; returns at once where there is none."""
    _take_lock(environment, fcntl.LOCK_SH)


def _take_lock(environment: Mapping[str, str], operation: int) -> None:
    """Lock the file that the builder holds, and give it back."""
    with suppress(FileNotFoundError), build_lock(environment).open("rb") as lock:
        fcntl.flock(lock, operation)
