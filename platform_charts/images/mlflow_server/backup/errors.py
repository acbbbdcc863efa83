"""What ends a backup or a drill, each with the exit status of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError


class BackupError(Exception):
    """It failed: exit status 1."""

    status = 1


class RefusedError(BackupError):
    """Nothing was changed, because a condition does not hold: exit status 3."""

    status = 3


class DamagedError(BackupError):
    """A file of a backup is missing, or is not what the manifest says."""


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn errors of the database and of AWS, whose text says enough, into ours.

    Raises:
        BackupError: one of them.
    """
    try:
        yield
    except (psycopg2.Error, BotoCoreError, ClientError, Boto3Error) as error:
        raise BackupError(f"{what}: {str(error).strip()}") from error
