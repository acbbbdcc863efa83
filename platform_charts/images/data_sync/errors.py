"""Errors that end the program; exit statuses are those of every command of the platform."""

from __future__ import annotations


class SyncError(Exception):
    """The copy failed, or was not verified (exit status 1). A new run continues it."""

    status = 1


class WrongInputError(SyncError):
    """Source or destination is invalid (exit status 2)."""

    status = 2


class RefusedSyncError(SyncError):
    """What the source holds cannot be copied to this destination (exit status 3)."""

    status = 3


class StoppedError(SyncError):
    """The program was told to stop; a new run continues (exit status 130)."""

    status = 130


class ChangedError(Exception):
    """An object is no longer the one that was listed."""


class CorruptError(Exception):
    """The bytes that arrived do not have the object's checksum."""
