"""The MLflow client, configured before MLflow is imported: no telemetry, no retries and short timeouts.

The follower does the retries. MLflow's own seven retries with backoff would hide for four minutes that a server is down, and could create
a run twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from training.tracking.locations import EMBEDDED_FOLDER, embedded_uri

REQUEST_SECONDS = 10
"""Timeout of a request."""

UPLOAD_SECONDS = 300
"""Timeout of a file upload: the server answers only when its artifact store, such as S3, has the file."""

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

import mlflow  # noqa: E402 - reads the environment variables above on import
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.utils.credentials import get_default_host_creds  # noqa: E402
from mlflow.utils.rest_utils import http_request  # noqa: E402
from sqlalchemy.exc import SQLAlchemyError  # noqa: E402

__all__ = ["STORE_ERRORS", "MlflowException", "connect", "mlflow", "server_version", "summarize", "upload_timeout"]

STORE_ERRORS = (MlflowException, SQLAlchemyError, OSError)
"""Errors of a tracking store that is unavailable or rejects a request; the exceptions of `requests` are OSErrors."""

_MAX_SUMMARY_CHARACTERS = 300


def summarize(error: BaseException) -> str:
    """The first line of an error's message: MLflow appends whole responses, SQLAlchemy statements."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:_MAX_SUMMARY_CHARACTERS]


def connect(uri: str) -> mlflow.MlflowClient:
    """A client of the tracking store; creates the embedded database if it does not exist.

    Raises:
        Exception: one of `STORE_ERRORS`: the store does not answer, has another version, or its folder cannot be created.
    """
    if uri != embedded_uri():
        return mlflow.MlflowClient(tracking_uri=uri)
    EMBEDDED_FOLDER.mkdir(parents=True, exist_ok=True)
    # The client creates missing tables; without the lock, one of two clients that do so concurrently fails.
    with (EMBEDDED_FOLDER / "create.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return mlflow.MlflowClient(tracking_uri=uri)


def server_version(uri: str) -> str:
    """The version that a tracking server says it has; `of an unknown version` if it does not say."""
    try:
        answer = http_request(get_default_host_creds(uri), "/version", "GET")
    except (MlflowException, OSError):
        return "of an unknown version"
    return str(answer.text).strip()[:20] if answer.status_code == HTTPStatus.OK else "of an unknown version"


@contextmanager
def upload_timeout() -> Iterator[None]:
    """Raise the request timeout to `UPLOAD_SECONDS` within the block; MLflow reads it for each request."""
    os.environ[_TIMEOUT] = str(UPLOAD_SECONDS)
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = str(REQUEST_SECONDS)
