"""Errors that end a command, and the exit status each one means.

Every message names the thing, the value, the rule that the value breaks, and the remedy. A message is for the person who typed
the command; a traceback is for a defect of ours, and these errors are therefore printed without one.
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

    def __reduce__(self) -> tuple[object, ...]:
        # The default would rebuild the error without its keyword argument on the far side of a process boundary.
        return _rebuild, (type(self), self.args[0], self.remedy)


def _rebuild(kind: type[PlatformError], message: str, remedy: str) -> PlatformError:
    return kind(message, remedy=remedy)


class SettingsError(PlatformError):
    """The input or a setting is wrong (exit status 2)."""

    status = ExitStatus.WRONG_INPUT


class PreflightError(PlatformError):
    """The input is well-formed, but this machine or folder cannot serve it (exit status 3)."""

    status = ExitStatus.REFUSED


class DataError(PlatformError):
    """A dataset is missing, truncated or holds something unreadable (exit status 3)."""

    status = ExitStatus.REFUSED


class CheckpointError(PlatformError):
    """A checkpoint could not be written, or none that was asked for can be read (exit status 1)."""


class ResumeMismatchError(PlatformError):
    """A checkpoint belongs to another dataset, model or global batch than the settings ask for (exit status 3)."""

    status = ExitStatus.REFUSED


class TrainingFailedError(PlatformError):
    """The run ended because of an error in a worker (exit status 1)."""


class NonFiniteLossError(TrainingFailedError):
    """The loss or the gradient became NaN or infinite and the setting is to stop (exit status 1)."""


class Interrupted(PlatformError):  # noqa: N818 - an interruption is no error
    """The person or the scheduler asked the run to stop and it did, at a committed step (exit status 130)."""

    status = ExitStatus.INTERRUPTED
