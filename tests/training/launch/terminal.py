"""Commands on a terminal of their own, which a test can read, and close as a lost connection does."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.training.launch.driver import PATIENCE

_POLL_SECONDS = 0.05
_CHUNK = 65536


class Terminal:
    """A command that leads the session of its terminal.

    Attributes:
        process: of the command.
        output: what it has written, as far as it was read; `wait_until` and `end` read.
    """

    def __init__(self, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self.output = bytearray()
        self._controller: int | None = controller

    def wait_until(self, has_happened: Callable[[], bool], *, timeout: float = PATIENCE) -> None:
        """Wait for something that the command does."""
        deadline = time.monotonic() + timeout
        while not has_happened():
            assert self.process.poll() is None, self.output.decode(errors="replace")
            assert time.monotonic() < deadline, self.output.decode(errors="replace")
            self._read()

    def end(self, *, timeout: float = PATIENCE) -> int:
        """Wait for the end of the command; returns its exit status."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output.decode(errors="replace")
            self._read()
        self._read()
        return self.process.returncode

    def close(self) -> None:
        """Close the terminal; the kernel sends SIGHUP."""
        if self._controller is not None:
            os.close(self._controller)
            self._controller = None

    def _read(self) -> None:
        """Read what there is, or wait a little for more."""
        if self._controller is None:
            time.sleep(_POLL_SECONDS)
            return
        is_ready, _, _ = select.select([self._controller], [], [], _POLL_SECONDS)
        try:
            self.output += os.read(self._controller, _CHUNK) if is_ready else b""
        except OSError:  # the command has ended
            self.close()


@contextmanager
def on_terminal(command: Sequence[str], *, folder: Path) -> Iterator[Terminal]:
    """Start a command on a terminal; it is killed if it still runs when the block ends."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def take_terminal() -> None:
        for number in (signal.SIGHUP, signal.SIGINT):  # which nohup and the background jobs of a shell ignore
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=folder,
        preexec_fn=take_terminal,  # noqa: PLW1509 - system calls only
    ) as process:
        os.close(terminal)
        shown = Terminal(process, controller)
        try:
            yield shown
        finally:
            shown.close()
            if process.poll() is None:
                process.kill()
