"""Child processes that do not outlive the driver."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux; elsewhere nothing happens).

    A driver that is killed outright cannot stop its ranks any more: without this they would train on, unseen.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
