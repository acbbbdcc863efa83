"""Child processes that do not outlive the driver."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import psutil

DRIVER_VARIABLE = "RTP_DRIVER_PID"
"""Environment variable in which ranks find the process id of their driver."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux; elsewhere nothing happens).

    A driver that is killed outright cannot stop its ranks any more: without this they would train on, unseen.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with_driver() -> None:
    """For a rank: die with its parent, be that the driver or torchrun's agent, which dies with the driver in turn.

    The kernel tells of no death that was before it was asked to: a rank whose driver was killed while it started ends here.
    """
    die_with_parent()
    driver = int(os.environ[DRIVER_VARIABLE])
    if driver not in {ancestor.pid for ancestor in psutil.Process().parents()}:
        sys.exit(f"the driver, process {driver}, is gone")
