"""The gate of a trial's rank 0: the search opens it one evaluation at a time, from another thread of the same process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""How long a run waits at its gate; its peers wait in a collective, which has a timeout. Then it saves and stops, and the next
start takes a second, because the ranks' processes stay."""


_POLL_SECONDS = 0.2


class Gate:
    """Lets a run train up to an epoch. All methods may be called from any thread."""

    def __init__(
        self, *, until_epoch: int, is_stop_requested: Callable[[], bool], patience: float = PATIENCE_SECONDS
    ) -> None:
        """Make a gate.

        Args:
            until_epoch: last epoch that may begin.
            is_stop_requested: whether the run was asked to save and stop.
            patience: longest wait, in seconds.
        """
        self._until_epoch = until_epoch
        self._is_stop_requested = is_stop_requested
        self._patience = patience
        self._changed = threading.Condition()

    def open(self, *, until_epoch: int) -> None:
        """Let the run train up to and including an epoch."""
        with self._changed:
            self._until_epoch = max(until_epoch, self._until_epoch)
            self._changed.notify_all()

    def may_begin(self, epoch: int) -> bool:
        """Return when an epoch may begin; false when the run is to save and stop, or has waited for too long."""
        deadline = time.monotonic() + self._patience
        with self._changed:
            while epoch > self._until_epoch:
                if self._is_stop_requested() or time.monotonic() > deadline:
                    return False
                self._changed.wait(_POLL_SECONDS)
        return not self._is_stop_requested()
