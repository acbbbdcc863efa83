"""Errors that end a command, and the exit status each one means.

A message names the thing, the value, the rule that the value breaks, and the remedy. It is for the person who typed the command, and
is printed without a traceback; a traceback is for a defect of ours.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit status of every command of the platform."""

    DONE = 0
    FAILED = 1
    WRONG_INPUT = 2
    REFUSED = 3
    INTERRUPTED = 130


class PlatformError(Exception):
    """An error whose message is enough for the person at the keyboard.

    Attributes:
        status: the exit status the command ends with.
        remedy: what to do about it; printed on a line of its own, empty where the message says it all.
    """

    status: ExitStatus = ExitStatus.FAILED

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  remedy: {self.remedy}" if self.remedy else message


class SettingsError(PlatformError):
    """The input, a setting, or a file that the settings depend on is wrong (exit status 2)."""

    status = ExitStatus.WRONG_INPUT


class RefusedError(PlatformError):
    """The input is well-formed, but this machine, account, release or environment cannot serve it (exit status 3)."""

    status = ExitStatus.REFUSED


class NotFoundError(Exception):
    """A source has no answer; the message says why."""
