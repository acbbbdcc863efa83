"""Programs that serve for a while: started, watched until they answer, and ended with whoever started them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infra.spec.errors import PlatformError

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal a process gets when the thread that started it ends."""

_TAIL_LINES = 15
_POLL_SECONDS = 0.05


class Process:
    """A running program, its output in a file.

    It is killed when the thread that started it ends, however that ends; on Linux only, elsewhere `stop` has to be
    reached.
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            log: file for what it prints; the program runs in the file's folder.
            environment: variables beside those of this process.
        """
        self.name = Path(command[0]).name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                # An interrupt at the keyboard is for the starter, which then ends its programs in order.
                start_new_session=True,
                preexec_fn=_die_with_the_starter if sys.platform == "linux" else None,  # noqa: PLW1509 - one thread
            )

    def await_(self, is_ready: Callable[[], bool], *, seconds: float) -> None:
        """Wait until it is ready.

        Raises:
            PlatformError: it ended, or is not ready in time; with the end of its output.
        """
        deadline = time.monotonic() + seconds
        while not is_ready():
            status = self._process.poll()
            if status is not None:
                raise PlatformError(f"{self.name} ended with status {status} before it was ready:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise PlatformError(f"{self.name} was not ready after {seconds:.0f} s:\n{self._tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Kill it: nothing it holds is to be kept, and a regular end of the API server waits for its watchers."""
        self._process.kill()
        self._process.wait()

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, held together so that they differ."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _die_with_the_starter() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
