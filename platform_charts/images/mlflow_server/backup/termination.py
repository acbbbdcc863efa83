"""Signals that end a drill."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_SIGNALLED = 128
"""Exit status of a process that a signal ends, less its number."""


class Termination:
    """Whether a signal has asked the process to end."""

    def __init__(self) -> None:
        self._signal = 0

    def stop(self, number: int, _: object) -> NoReturn:
        """Handle the signal: raise SystemExit."""
        self._signal = number
        raise SystemExit(_SIGNALLED + number)

    def check(self) -> None:
        """Raise SystemExit if there was a signal: the exception of `stop` may have been caught."""
        if self._signal:
            raise SystemExit(_SIGNALLED + self._signal)


@contextmanager
def terminable() -> Iterator[Termination]:
    """Let SIGTERM and Ctrl-C end the block like an exception, so that it drops what it made."""
    found = Termination()
    before = {number: signal.signal(number, found.stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
