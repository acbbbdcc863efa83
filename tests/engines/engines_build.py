"""Wait for a running `make engines`, so that the tests that need its programs are not skipped."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Mapping
from contextlib import suppress

from infra.lifecycle.sandbox.modules import Module, build_lock

_POLL_SECONDS = 0.5


def is_build_running(environment: Mapping[str, str]) -> bool:
    """Whether `make engines` is running."""
    try:
        _take_lock(environment, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def await_build(environment: Mapping[str, str], *modules: Module) -> None:
    """Wait until the programs of the modules are built, or no build is running, whether it succeeds or fails."""
    needed = [module.cache_folder(environment) / program for module in modules for program in module.packages]
    if not needed:
        _take_lock(environment, fcntl.LOCK_SH)
    while not all(program.is_file() for program in needed) and is_build_running(environment):
        time.sleep(_POLL_SECONDS)


def _take_lock(environment: Mapping[str, str], operation: int) -> None:
    """Lock the file that a build holds, and release it."""
    with suppress(FileNotFoundError), build_lock(environment).open("rb") as lock:
        fcntl.flock(lock, operation)
