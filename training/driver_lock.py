"""The lock of the process that drives a run or a search. The kernel holds it (flock), so a killed driver releases it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_NAME = "driver.pid"


class DriverLock:
    """The lock on a folder; its file has the process id of the driver, on the machine it runs on."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE_NAME

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock until the block or this process ends.

        Raises:
            BlockingIOError: another process holds it.
        """
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether a process holds it."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def pid(self) -> int | None:
        """Process id of the last driver; None before the first one wrote it."""
        text = self._file.read_text(encoding="ascii") if self._file.exists() else ""
        return int(text) if text else None


def _lock(descriptor: int) -> None:
    """Take the exclusive lock, retrying: `is_held` holds a shared one for microseconds."""
    for _ in range(5):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.02)
    raise BlockingIOError("another process holds the lock")
