"""Folders that cannot be written: a full disk, a quota, a lost file system. Says so in place of a traceback, with a remedy."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from training.errors import TrainingFailedError

REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space, or raise the quota",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make the folder writable"),
    **dict.fromkeys((errno.ESTALE, errno.EIO), "check the file system"),
}
"""What to do about each error of a write."""

_FULL = (errno.ENOSPC, errno.EDQUOT)

_PROBE_BYTES = 64 * 1024
"""More than the unused end of a block, in which a log can still be written on a full disk."""


def explain(error: BaseException, folder: Path, *, owner: str, then: str) -> TrainingFailedError | None:
    """The error to end with if a folder cannot be written; None for other causes.

    Args:
        error: what has happened. If it was raised from, or while handling, an error of a full disk, that one is the cause.
        folder: named in the message if the error does not name a file.
        owner: what has the folder, e.g. "run".
        then: what to do once it can be written.
    """
    cause = error if isinstance(error, OSError) and error.errno in REMEDIES else full_disk(error)
    if cause is None:
        return None
    assert cause.errno is not None
    message = f"{cause.filename or folder}: {cause.strerror}: the {owner}'s folder cannot be written"
    return TrainingFailedError(message, remedy=f"{REMEDIES[cause.errno]}; {then}")


def full_disk(error: BaseException) -> OSError | None:
    """The error of a full disk or quota that an error was raised from, or while handling it; None if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def probe(folder: Path) -> OSError | None:
    """The error of writing a small file to a folder and removing it; None if that succeeds."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error
    return None
