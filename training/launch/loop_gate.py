"""Keeps the threads of worker groups from calling Ray while this process leaves the cluster, and after it.

Such a call prints a traceback, or ends the whole process, though its run has ended well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class GateClosedError(Exception):
    """The process leaves the cluster: a thread must not call Ray any more."""


class LoopGate:
    """Counts the threads that call Ray. It can be closed once, for all that come later."""

    def __init__(self) -> None:
        """Open it."""
        self._changed = threading.Condition()
        self._inside = 0
        self._is_closed = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A block that calls Ray.

        Raises:
            GateClosedError: the gate is closed; the block does not run.
        """
        with self._changed:
            if self._is_closed:
                raise GateClosedError
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self, *, seconds: float) -> bool:
        """Let no thread in any more, and wait so long for those inside; returns whether all have left."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._inside, seconds)
