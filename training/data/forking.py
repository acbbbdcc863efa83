"""Processes that are forked until one starts.

CPython before 3.11.10 can deadlock a forked child before it runs any Python code: the fork copies the lock of the list of
thread states, which another thread may hold at that moment and nobody releases in the child (python/cpython, issue 112275).
Such a child never ends by itself. Here the parent waits for a sign of life, and forks again if there is none.

A child also ends with the thread that started it. torch's own watchdog notices only a parent that dies after a worker's loop has begun;
a rank that is killed while its loader starts would leave workers for ever.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import sys
from multiprocessing import popen_fork
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.process import BaseProcess
from typing import Any

from training.errors import PlatformError
from training.launch.processes import die_with_parent

PATIENCE = (10.0, 30.0, 90.0)
"""Seconds to wait for a child, attempt by attempt. One that is only slow has done nothing yet, and may be killed."""


class _Popen(popen_fork.Popen):
    def _launch(self, process_obj: BaseProcess) -> None:
        assert isinstance(process_obj, _Process)
        for seconds in PATIENCE:
            reader, writer = os.pipe()
            process_obj.parent, process_obj.pipe = os.getpid(), (reader, writer)
            try:
                super()._launch(process_obj)  # type: ignore[misc] # not in typeshed
            finally:
                os.close(writer)
            try:
                if multiprocessing.connection.wait([reader], seconds):
                    return
            finally:
                os.close(reader)
            self._give_up(seconds)
        raise PlatformError(
            f"no process of the data loader started in {sum(PATIENCE):.0f} s",
            remedy="set data.loader_workers: 0, or use Python 3.11.10 or later",
        )

    def _give_up(self, seconds: float) -> None:
        print(f"a process of the data loader did not start in {seconds:.0f} s: starting another", file=sys.stderr)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        assert self.finalizer is not None
        self.finalizer()  # closes the pipes of this attempt


class _Process(ForkProcess):
    """A process that writes to its pipe when it starts."""

    parent: int
    pipe: tuple[int, int]

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: ANN401, N802 - as the base class has it
        return _Popen(process_obj)

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        die_with_parent()
        if os.getppid() != self.parent:  # it died before the request
            os._exit(1)
        reader, writer = self.pipe
        os.close(reader)
        os.write(writer, b".")
        os.close(writer)
        return super()._bootstrap(parent_sentinel)  # type: ignore[misc,no-any-return] # not in typeshed


class StartedForkContext(ForkContext):
    """multiprocessing's context `fork`, with processes that have started when `start` returns."""

    Process = _Process
