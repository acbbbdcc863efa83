"""Errors that end a command, and the exit status of each.

A message names the thing, the value, the rule that it breaks, and the remedy. It is for the user, and is printed without a
traceback; a traceback means a bug.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitStatus(IntEnum):
    """Exit status of every command of the platform."""

    DONE = 0
    FAILED = 1
    WRONG_INPUT = 2
    REFUSED = 3
    INTERRUPTED = 130


EXIT_MEANINGS: Final[Mapping[ExitStatus, str]] = {
    ExitStatus.DONE: "The command did what it was asked for.",
    ExitStatus.FAILED: "It failed, e.g. because training failed or a check found something.",
    ExitStatus.WRONG_INPUT: "An option, a setting or a file is invalid; the message names the value, the rule and the remedy.",
    ExitStatus.REFUSED: "The input is valid, but a check refuses: this machine, account, release or environment cannot serve it.",
    ExitStatus.INTERRUPTED: "Ctrl-C or a signal ended it.",
}
"""When a command ends with each status."""


_CONNECTION = re.compile(r"^HTTPS?Connection(?:Pool)?\(host=[^)]*\): ")


def reason_of(error: BaseException) -> str:
    """What went wrong in a request of urllib3, in one line.

    urllib3 hides the cause in the error of the last retry, behind the name of its connection object.
    """
    said = " ".join(str(getattr(error, "reason", None) or error).split())
    return _CONNECTION.sub("", said)


class PlatformError(Exception):
    """An error whose message suffices for the user.

    Attributes:
        status: exit status of the command.
        remedy: how to fix it, printed on its own line; empty if the message is enough.
    """

    status: ExitStatus = ExitStatus.FAILED

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  remedy: {self.remedy}" if self.remedy else message


class SettingsError(PlatformError):
    """The input, a setting, or a file that the settings depend on is invalid (exit status 2)."""

    status = ExitStatus.WRONG_INPUT


class RefusedError(PlatformError):
    """The input is valid, but this machine, account, release or environment cannot serve it (exit status 3)."""

    status = ExitStatus.REFUSED


class NotFoundError(Exception):
    """A source does not have the value; the message says why."""


class NoAnswerError(NotFoundError):
    """A source gave no answer, so it is not known whether it has the value: it is unreachable, or denies access."""
