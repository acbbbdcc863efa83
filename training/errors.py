"""Errors that only a training run has; the others are the platform's own, from `infra.spec.errors`."""

from __future__ import annotations

from infra.spec.errors import ExitStatus, PlatformError, RefusedError, SettingsError

__all__ = [
    "CheckpointError",
    "DataError",
    "ExitStatus",
    "Interrupted",
    "NonFiniteLossError",
    "PlatformError",
    "PreflightError",
    "ResumeMismatchError",
    "SettingsError",
    "TrainingFailedError",
]


class PreflightError(RefusedError):
    """The settings are valid, but this machine or folder cannot serve them (exit status 3)."""


class DataError(RefusedError):
    """A dataset is missing, truncated or unreadable (exit status 3)."""


class CheckpointError(PlatformError):
    """A checkpoint could not be written, or none that was asked for can be read (exit status 1)."""


class ResumeMismatchError(RefusedError):
    """A checkpoint belongs to another dataset, model or global batch than the settings ask for (exit status 3)."""


class TrainingFailedError(PlatformError):
    """The run ended because of an error in a worker (exit status 1)."""


class NonFiniteLossError(TrainingFailedError):
    """The loss or the gradient became NaN or infinite and the setting is to stop (exit status 1)."""


class Interrupted(PlatformError):  # noqa: N818 - an interruption is no error
    """The person or the scheduler asked the run to stop and it did, at a committed step (exit status 130)."""

    status = ExitStatus.INTERRUPTED
