"""Runs the suite as `make test` does: pytest with the given arguments, and nothing of what tests started or wrote is left at its end.

A stop, by Ctrl-C, SIGTERM or a closed terminal, gives the tests some seconds to put away what they made, and then ends whatever is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from tests import END_VARIABLE

_GRACE_SECONDS = 4.0
"""From a stop until what is left is killed."""

_STOPS = {one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN}
"""Not those that whoever started this has taken away, as `nohup` does."""

_END_SECONDS = 2.0
"""For what ends by itself after the tests, as multiprocessing's fork servers do."""

_POLL_SECONDS = 0.2
_INTERRUPTED = 130
_NO_RESULT = 3
"""pytest's status of an internal error."""

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): processes whose parent dies become this one's children."""

_WORKER = "exec(eval(sys.stdin.readline()))"
"""A part of the command line of xdist's processes."""


def main(arguments: Sequence[str]) -> int:
    """Run pytest with a folder for everything temporary; returns the exit status.

    pytest itself keeps the folders of its last sessions, elsewhere, for whoever looks for the cause of a failure.
    """
    # pytest inherits it, until tests/conftest.py takes stops.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, signal.SIGCHLD})
    kept = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # A short path: Ray has sockets there.
    with tempfile.TemporaryDirectory(prefix="rtp-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL runs as another user
        end = Path(folder, "end")
        os.environ |= {"PYTEST_DEBUG_TEMPROOT": kept, "TMPDIR": folder, END_VARIABLE: str(end)}
        status = run(arguments)
        if not end.exists() and status == _INTERRUPTED:
            print("\nstopped by you", file=sys.stderr)
        elif not end.exists() and status == 0:
            print(
                "the tests' process has ended without a result: something that a test ran has ended it", file=sys.stderr
            )
            return _NO_RESULT
        return status


def run(arguments: Sequence[str]) -> int:
    """Run pytest, and end all processes that come from it; returns the exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    suite = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        preexec_fn=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, {signal.SIGCHLD}),  # noqa: PLW1509 - there are no threads
    )
    deadline: float | None = None
    status: int | None = None
    while status is None:
        told = signal.sigtimedwait({*_STOPS, signal.SIGCHLD}, _POLL_SECONDS)
        if told is not None and told.si_signo in _STOPS:
            deadline = deadline or time.monotonic() + _GRACE_SECONDS
            _interrupt(suite.pid)  # also if a terminal did: the tests take the first one
        if deadline is not None and time.monotonic() > deadline:
            _kill()
        status = dict(_reaped()).get(suite.pid)
    if deadline is None:
        psutil.wait_procs(_left(), timeout=_END_SECONDS)
        for process in _left():
            print(f"left running by the tests, and ended now: {_words(process)}", file=sys.stderr)
    while _left():
        _kill()
        time.sleep(_POLL_SECONDS / 10)
        list(_reaped())
    return os.waitstatus_to_exitcode(status) if deadline is None else _INTERRUPTED


def _interrupt(suite: int) -> None:
    """Interrupt pytest and the processes among which it distributes tests: a signal to this process alone has reached none of them."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(suite)
        for one in [process, *(child for child in process.children() if _WORKER in _words(child))]:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGINT)


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
    sys.exit(main(sys.argv[1:]))
