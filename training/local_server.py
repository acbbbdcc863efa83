"""A server of this machine that runs while a command does, such as MLflow for `make ui` or Prometheus for `make monitor-up`."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from training.errors import PlatformError

HOST = "127.0.0.1"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.2


@contextmanager
def running(
    command: Sequence[str], *, ready_url: str, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server and wait until it answers; end it at the end of the block.

    Args:
        command: starts the server.
        ready_url: answers once it is ready.
        log: file for its output, named after it.
        environment: variables beside those of this process.

    Raises:
        PlatformError: it exited, or did not answer in two minutes.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
        )
    try:
        _await_ready(process, ready_url, log=log)
        yield process
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Whether something answers at a loopback URL."""
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
        return True
    return False


def _await_ready(process: subprocess.Popen[bytes], url: str, *, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if answers(url):
            return
        time.sleep(_POLL_SECONDS)
    raise PlatformError(f"{log.stem} did not start", remedy=f"see {log}")
