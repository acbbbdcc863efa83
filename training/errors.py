"""Errors of training runs; the general ones come from `infra.spec.errors`."""

from __future__ import annotations

from infra.spec.errors import ExitStatus, PlatformError, RefusedError, SettingsError

__all__ = [
    "CheckpointError",
    "DataError",
    "DeviceError",
    "ExitStatus",
    "Interrupted",
    "LoaderProcessError",
    "NonFiniteLossError",
    "OutOfMemoryError",
    "PlatformError",
    "PreflightError",
    "ResumeMismatchError",
    "SettingsError",
    "TrainingFailedError",
]


class PreflightError(RefusedError):
    """The settings are valid, but not on this machine or in this folder (exit status 3)."""


class DataError(RefusedError):
    """A dataset is missing, truncated or unreadable (exit status 3)."""


class CheckpointError(PlatformError):
    """A checkpoint could not be written or read (exit status 1)."""


class ResumeMismatchError(RefusedError):
    """A checkpoint belongs to another dataset, model or global batch than the settings (exit status 3).

    Attributes:
        dataset_fingerprint: of the checkpoint, if it is of another dataset.
    """

    dataset_fingerprint: str = ""


class TrainingFailedError(PlatformError):
    """The run ended because of an error in a worker (exit status 1)."""


class NonFiniteLossError(TrainingFailedError):
    """The loss or the gradient became NaN or infinite: in a step under loop.nonfinite=stop, or in most of a run's (exit status 1)."""


class OutOfMemoryError(TrainingFailedError):
    """A rank ran out of memory (exit status 1)."""


class LoaderProcessError(TrainingFailedError):
    """A process of the data loader was killed, or ended by itself (exit status 1)."""


class DeviceError(TrainingFailedError):
    """A device or the host of a rank failed the check before the ranks connect (exit status 1)."""


class Interrupted(PlatformError):  # noqa: N818 - an interruption is not an error
    """The user or the scheduler stopped the run, at a committed step (exit status 130)."""

    status = ExitStatus.INTERRUPTED
