"""Ranks as children of a process that has imported torch and the trainer: a new one starts in milliseconds.

It is `multiprocessing`'s fork server, one for each agent. It computes nothing, so it has no threads and no GPU, and can be forked at any
time. Python starts it with the variables of the agent's process, before it imports anything.
"""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from training.launch.agent.resident import serve_attempts

_PRELOADED = ["training.launch.agent.resident", "training.launch.agent.preloaded"]


@dataclass(eq=False, kw_only=True)
class RankProcess:
    """The process of a rank.

    Attributes:
        process: its `sentinel` is readable once it has ended.
        connection: orders to it, and its answers.
    """

    process: ForkServerProcess
    connection: Connection

    @property
    def status(self) -> int:
        """Exit status of a process that has ended, negative for a signal; waits for it."""
        self.process.join()
        status = self.process.exitcode
        assert status is not None
        return status

    def kill(self) -> None:
        """End it now; does nothing to one that has ended."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class ForkServer:
    """Starts ranks."""

    def __init__(self) -> None:
        """Prepare; it starts with the first rank."""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    def start(self, memory: Path) -> RankProcess:
        """Start the process of a rank, which waits for orders. `memory` is its folder for what it keeps between attempts."""
        ours, theirs = multiprocessing.Pipe()
        process = self._context.Process(target=serve_attempts, args=(theirs, memory), name="rank")
        with _without_main_module():
            process.start()
        theirs.close()
        return RankProcess(process=process, connection=ours)


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Children import the main module of their parent, which here is Ray's worker and takes seconds; they need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
