"""Real services of a test session: those that ran, and those that are missing, with what enables them.

A fixture that starts a service calls `ran(name)` once it is ready, or `skipped(name, reason, enable)`, which also skips the test.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

RAN: set[str] = set()
"""Services that ran in this process, or in one that reported to it."""

ABSENT: set[str] = set()
"""What tests of this process, or of one that reported to it, did without, each with its reason."""


def ran(name: str) -> None:
    """Record that a service ran."""
    RAN.add(name)


def absent(name: str, reason: str, enable: str) -> None:
    """Record that a service is missing, in a test that works without it."""
    ABSENT.add(f"{name}: {reason}; to enable: {enable}")


def skipped(name: str, reason: str, enable: str) -> NoReturn:
    """Skip the test, because a service is missing.

    Args:
        name: the service.
        reason: why it does not run.
        enable: the command or condition that makes it run.
    """
    pytest.skip(f"{name}: {reason}; to enable: {enable}")
