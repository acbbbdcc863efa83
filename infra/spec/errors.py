"""Errors that end a command of the stack, and the exit status each one means.

Same manner as the trainer's: a message names the thing, the value, the rule that the value breaks, and the remedy. It
is for the person who typed the command, and is printed without a traceback.
"""

from __future__ import annotations

from typing import ClassVar


class StackError(Exception):
    """An error whose message is enough for the person at the keyboard.

    Attributes:
        status: the exit status the command ends with.
        remedy: what to do about it; printed on a line of its own, empty where the message says it all.
    """

    status: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  remedy: {self.remedy}" if self.remedy else message


class SettingsError(StackError):
    """A setting, or a file the settings depend on, is wrong (exit status 2)."""

    status = 2


class RefusedError(StackError):
    """The input is well-formed, but this account, release or environment may not be served with it (exit status 3)."""

    status = 3


class NotFoundError(Exception):
    """A source has no answer; the message says why."""
