"""Server processes: start, wait until ready, stop with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infra.spec.errors import PlatformError

_PR_SET_PDEATHSIG = 1
"""prctl(2): set the signal that a process gets when its parent thread ends."""

_TAIL_LINES = 15
_PORTS = range(20_000, 32_000)
"""Below those that Linux and macOS give to outgoing connections, one of which would take a port before its server binds it."""

_POLL_SECONDS = 0.05


class Process:
    """A running program with its output in a log file.

    On Linux it is killed when the thread that started it ends, for any reason; elsewhere only `stop` ends it.
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the program.

        Args:
            command: the program and its arguments.
            log: file for its output; its folder is the working directory.
            environment: environment variables to add to those of this process.
        """
        self.name = Path(command[0]).name
        self._command = command
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        log.unlink(missing_ok=True)
        self._process = self._started()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not exited."""
        return self._process.poll() is None

    def await_(
        self, is_ready: Callable[[], bool], *, seconds: float, last_answer: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait until the program is ready.

        Args:
            is_ready: asked until it says so.
            seconds: how long at most.
            last_answer: lines that the program answered last, for the error.

        Raises:
            PlatformError: it exited, or is not ready in time; carries the end of its output.
        """
        deadline = time.monotonic() + seconds
        while not is_ready():
            status = self._process.poll()
            if status is not None:
                raise PlatformError(f"{self.name} exited with status {status} before it was ready:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise PlatformError(f"{self.name} was not ready after {seconds:.0f} s:\n{last_answer()}{self._tail()}")
            time.sleep(_POLL_SECONDS)

    def keep_running(self) -> None:
        """Start the program again if it has exited; its log goes on."""
        if not self.is_running:
            self._process = self._started()

    def await_exit(self, seconds: float) -> None:
        """Wait until it has exited, or the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def stop(self) -> None:
        """Kill the program: it has no state to keep, and a graceful shutdown of the API server waits for its watchers."""
        self._process.kill()
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._log.parent,
                env=self._environment,
                # Ctrl-C goes to the parent only, which then stops its processes in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one thread
            )

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that are free now, in no order: another process may look for some at the same time.

    Nor in an order that a seed has: processes that train have seeded Python's generator, all with the same number.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise PlatformError(f"fewer than {count} of the ports {_PORTS.start} to {_PORTS.stop - 1} are free")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
