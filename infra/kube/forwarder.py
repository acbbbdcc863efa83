"""A program that forwards a port for as long as it is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

_STOP_SECONDS = 5.0


@contextmanager
def forwarder(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[str]]]:
    """Run a command until the end of the block; yields its process and a file with what it prints.

    It gets no Ctrl-C, and ends with the programs that it has started, e.g. a plugin of the AWS CLI.
    """
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            yield process, said
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
