"""A forwarded port that is known to work, and to be broken."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from infra.kube.forwarder import forwarder

_OPEN_SECONDS = 30.0
_PROBE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_FAILURES = 3
_LONGEST_WORDS = 300
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Colours and bold type, which Ray prints into files too."""


class PortForward:
    """A command that forwards a port, e.g. `kubectl port-forward`, and an address that answers through it."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[str], url: str) -> None:
        self._process, self._said, self._url = process, said, url

    def await_open(self, *, seconds: float = _OPEN_SECONDS) -> None:
        """Wait until the address answers.

        Raises:
            ConnectionError: the command has ended, or nothing answers in time; carries what the command said.
        """
        deadline = time.monotonic() + seconds
        # Whether the command lives comes after the answer: if another program took the port, that program has answered.
        while not self._answers() or self._process.poll() is not None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ConnectionError(self._words())
            time.sleep(_POLL_SECONDS)

    def await_broken(self, *, probe_seconds: float = _PROBE_SECONDS) -> str:
        """Wait until the command ends, or nothing answers any more: it can outlive its connection; returns what it said."""
        failures = 0
        while failures < _FAILURES:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(probe_seconds)
                return self._words()
            failures = 0 if self._answers() else failures + 1
        return "nothing answers any more"

    def end(self) -> None:
        """End the command, for another thread that waits for it; does not wait."""
        self._process.terminate()

    def _answers(self) -> bool:
        try:
            with urlopen(self._url, timeout=_PROBE_SECONDS):  # noqa: S310 - our own address
                return True
        except (URLError, OSError):
            return False

    def _words(self) -> str:
        self._said.seek(0)
        words = " ".join(_STYLE.sub("", self._said.read()).split())
        if len(words) > _LONGEST_WORDS:
            words = f"… {words[-_LONGEST_WORDS:].partition(' ')[2]}"
        return words or "the connection ended"


@contextmanager
def port_forward(command: Sequence[str], *, url: str) -> Iterator[PortForward]:
    """Run a command that forwards a port.

    Args:
        command: the command.
        url: an address that answers without a login when the port is forwarded.
    """
    with forwarder(command) as (process, said):
        yield PortForward(process, said, url)
