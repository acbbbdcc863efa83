"""A clock that nobody sets: the time since this machine started, which all its processes share."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DIGITS = 12


def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").replace("-", "")[:_DIGITS]
    except OSError:
        return ""


BOOT = _boot()
"""Identifies the start of this machine's kernel, from which `uptime` counts; empty where it is not Linux."""


def uptime() -> float | None:
    """Seconds since the start `BOOT`, those in which the machine slept included; None where that is not known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if BOOT else None
