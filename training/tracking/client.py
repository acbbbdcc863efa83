"""MLflow's client, set up before it is imported: no telemetry, no retries of its own, and soon tired of a silent server.

Retrying is the follower's business: MLflow's own retries, seven with growing pauses, would hide for four minutes that a server is gone,
and could create a run twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from training.tracking.locations import EMBEDDED_FOLDER, embedded_uri

REQUEST_SECONDS = 10
"""Seconds a server may take to answer a request."""

UPLOAD_SECONDS = 300
"""Seconds a server may take to answer a file: it answers when its own store, S3 for example, has it."""

_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"

os.environ.update(
    {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        _TIMEOUT: str(REQUEST_SECONDS),
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
)

import mlflow  # noqa: E402 - reads the environment above while it is imported
from mlflow.exceptions import MlflowException  # noqa: E402
from sqlalchemy.exc import SQLAlchemyError  # noqa: E402

__all__ = ["MlflowException", "Unavailable", "connect", "in_words", "mlflow", "uploading"]

Unavailable = (MlflowException, SQLAlchemyError, OSError)
"""What a store that is away, or refuses, raises; the errors of `requests` are OSErrors."""

_LONGEST_MESSAGE = 300


def in_words(error: BaseException) -> str:
    """The beginning of an error's message: MLflow's go on with whole responses, SQLAlchemy's with statements."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:_LONGEST_MESSAGE]


def connect(uri: str) -> mlflow.MlflowClient:
    """A client of the store. The embedded database is made where it does not exist: once, whoever comes first.

    Raises:
        Exception: one of `Unavailable`: the store does not answer, is of another version, or its folder cannot be made.
    """
    if uri != embedded_uri():
        return mlflow.MlflowClient(tracking_uri=uri)
    EMBEDDED_FOLDER.mkdir(parents=True, exist_ok=True)
    # A client of a database makes the tables it does not find; of two that do so at once, one would fail.
    with (EMBEDDED_FOLDER / "create.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return mlflow.MlflowClient(tracking_uri=uri)


@contextmanager
def uploading() -> Iterator[None]:
    """Have the patience that files need, for the length of the block; MLflow reads its time limit at each request."""
    os.environ[_TIMEOUT] = str(UPLOAD_SECONDS)
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = str(REQUEST_SECONDS)
