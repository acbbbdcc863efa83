"""Child processes that die with the driver, and not with its terminal."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

DRIVER_VARIABLE = "RTP_DRIVER_PID"
"""Environment variable with the process id of the driver."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_NAME = 15


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux only; a no-op elsewhere).

    A driver that is killed by SIGKILL cannot stop its ranks: without this they would continue to train.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def set_process_name(name: str) -> None:
    """Name this process for `ps` and `top`, in up to 15 bytes (Linux only; a no-op elsewhere)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode())


def die_with_driver() -> None:
    """Make this rank die with its parent: the driver, or torchrun's agent, which dies with the driver in turn.

    The kernel does not signal a death before the request, so this exits if the driver was killed while the rank started.
    """
    die_with_parent()
    driver = int(os.environ[DRIVER_VARIABLE])
    if driver not in {ancestor.pid for ancestor in psutil.Process().parents()}:
        sys.exit(f"the driver (process {driver}) has exited")


@contextmanager
def immune_to_hangup() -> Iterator[None]:
    """Processes that this thread starts in the block outlive a closed terminal, which signals the whole foreground process group.

    They inherit the blocked SIGHUP, and stay in that group for Ctrl-C. This process handles one that arrives meanwhile after the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
