"""Progress of a copy, as a line of its log."""

from __future__ import annotations

import threading
import time

_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Counts bytes and files from all threads.

    Args:
        files: to copy.
        size: of these files, in bytes.
    """

    def __init__(self, *, files: int, size: int) -> None:
        self._files, self._size = files, size
        self._done_files = self._done_size = self._resumed = 0
        self._lock = threading.Lock()
        self._start = time.monotonic()

    def add(self, size: int, *, is_resumed: bool = False) -> None:
        """Bytes have arrived; negative if they have to be read again."""
        with self._lock:
            self._done_size += size
            self._resumed += size if is_resumed else 0

    def finish_file(self) -> None:
        """A file is complete."""
        with self._lock:
            self._done_files += 1

    def line(self) -> str:
        """Files, bytes, rate, and the remaining time at this rate."""
        with self._lock:
            seconds = max(time.monotonic() - self._start, 1e-3)
            rate = (self._done_size - self._resumed) / seconds
            left = self._size - self._done_size
            eta = f", {duration(left / rate)} left" if rate > 0 and left > 0 else ""
            return (
                f"{self._done_files}/{self._files} files, {amount(self._done_size)} of {amount(self._size)}, "
                f"{rate / 1e6:.1f} MB/s{eta}"
            )


def amount(size: float) -> str:
    """Bytes in words, e.g. 1.5 GB."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[0]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A time in words, e.g. 1h05m."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
