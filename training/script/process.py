"""A command as a process group, with its output line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from training.launch.processes import die_with_parent
from training.script.command_line import SHELL

_LONGEST_LINE = 64 * 1024
_POLL_SECONDS = 0.1
_LAST_LINES_SECONDS = 5.0


class CommandProcess:
    """A command that runs in the background.

    Its first process has a group of its own, which signals reach. A command that was asked to end has ended when the whole group has:
    a shell may die before the programs that it started have saved. Without such a request, what the first process leaves behind is killed.
    """

    def __init__(
        self, text: str, *, environment: Mapping[str, str], folder: Path, on_line: Callable[[str], None]
    ) -> None:
        """Start it.

        Args:
            text: the command line.
            environment: all its environment variables.
            folder: its working folder.
            on_line: called with each line of its output, in a thread.

        Raises:
            OSError: the working folder cannot be entered, or there is no shell.
        """
        self._text, self._environment, self._folder, self._on_line = text, environment, folder, on_line
        self._process: subprocess.Popen[str] | None = None
        self._error: OSError | None = None
        self._is_asked = False
        self._has_started, self._has_ended = threading.Event(), threading.Event()
        # The kernel ends the process with the thread that started it: this one stays until the command has ended.
        threading.Thread(target=self._run, name="command", daemon=True).start()
        self._has_started.wait()
        if self._error is not None:
            raise self._error

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end; returns the exit status as a shell reports it, 128 + n after signal n, or None if it has not ended."""
        self._has_ended.wait(seconds)
        return self.status

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        if self._process is None or not self._has_ended.is_set():
            return None
        return exit_status(self._process.returncode)

    def terminate(self) -> None:
        """Send SIGTERM to its group: a script may save and exit."""
        self._is_asked = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its group and all descendants: torchrun starts its ranks in groups of their own."""
        assert self._process is not None
        self._is_asked = True
        descendants = []
        with suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(self._process.pid).children(recursive=True)
        self._signal(signal.SIGKILL)
        for one in descendants:
            with suppress(psutil.NoSuchProcess):
                one.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if not self._has_ended.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _run(self) -> None:
        try:
            process = subprocess.Popen(
                [SHELL, "-c", self._text],
                cwd=self._folder,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,  # a carriage return ends a line, too: progress bars use nothing else
                errors="replace",
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call, safe after a fork with threads
            )
        except OSError as error:
            self._error = error
            self._has_started.set()
            return
        self._process = process
        reader = threading.Thread(target=self._read, args=(process,), name="command-output", daemon=True)
        reader.start()
        self._has_started.set()
        process.wait()
        while self._is_asked and _is_alive(process.pid):
            time.sleep(_POLL_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # A process that has left the group may hold the pipe open for ever.
        reader.join(_LAST_LINES_SECONDS)
        self._has_ended.set()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in iter(lambda: process.stdout.readline(_LONGEST_LINE), ""):  # type: ignore[union-attr]
            self._on_line(line.rstrip("\n"))


def exit_status(returncode: int) -> int:
    """The exit status of a process as a shell reports it: 128 + n after signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def _is_alive(group: int) -> bool:
    """Whether a process of the group has not exited; one that nobody waits for may stay as a zombie."""
    for one in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
