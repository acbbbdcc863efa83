"""Runs the suite as `make test` does: pytest with the given arguments, and nothing of what tests started is left at its end.

A stop, by Ctrl-C or by SIGTERM, gives the tests some seconds to put away what they made, and then ends whatever is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

_GRACE_SECONDS = 4.0
"""From a stop until what is left is killed."""

_POLL_SECONDS = 0.2
_INTERRUPTED = 130
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): processes whose parent dies become this one's children."""


def run(arguments: Sequence[str]) -> int:
    """Run pytest, and end all processes that come from it; returns the exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    suite = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, signal.SIGCHLD})
    deadline: float | None = None
    status: int | None = None
    while status is None:
        told = signal.sigtimedwait({*_STOPS, signal.SIGCHLD}, _POLL_SECONDS)
        if told is not None and told.si_signo in _STOPS:
            deadline = deadline or time.monotonic() + _GRACE_SECONDS
            suite.send_signal(signal.SIGINT)  # also if a terminal did: the tests take the first one
        if deadline is not None and time.monotonic() > deadline:
            _kill()
        status = dict(_reaped()).get(suite.pid)
    if deadline is None:
        for process in _left():
            print(f"left running by the tests, and ended now: {_words(process)}", file=sys.stderr)
    while _left():
        _kill()
        time.sleep(_POLL_SECONDS / 10)
        list(_reaped())
    return os.waitstatus_to_exitcode(status) if deadline is None else _INTERRUPTED


def _reaped() -> Iterator[tuple[int, int]]:
    """Processes that have ended, with their status; the orphans among them would be left as zombies."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            yield ended


def _left() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if _is_running(one)]


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _kill() -> None:
    for process in _left():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _words(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())[:200]
    return f"process {process.pid}"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
