"""The agent of a rank, in a Ray worker: it starts the rank's process, passes orders on to it, and notices its end at once."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path

from training.launch.agent.fork_server import ForkServer
from training.launch.agent.messages import (
    Abandon,
    AskPort,
    Ended,
    Hello,
    Message,
    Port,
    Release,
    Start,
    Stop,
    receive,
    send,
)
from training.launch.agent.resident import GiveUp, Leave, Order, Result
from training.launch.task import RankPlace
from training.network import free_port

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what Linux has for this purpose
_FOLDER = "rtp-rank-"


class Agent:
    """Serves the driver of a run until the run is over or the driver is gone."""

    def __init__(self, hello: Hello, *, memory: Path) -> None:
        """Start the rank's process, which takes seconds to import torch.

        Args:
            hello: the place of the rank.
            memory: folder in which the process keeps its state between attempts.
        """
        self._hello = hello
        self._memory = memory
        self._server = ForkServer()
        self._rank = self._server.start(memory)
        self._is_running = False
        self._deadline: float | None = None

    def serve(self, address: tuple[str, int], key: bytes) -> None:
        """Connect to the driver, and do what it says.

        Raises:
            OSError: the driver cannot be reached.
        """
        with self._ending_the_rank(), Client(address, "AF_INET", authkey=key) as driver:
            send(driver, self._hello)
            # The driver is gone: then nobody waits for this rank.
            with suppress(EOFError, OSError):
                while self._serve_one(driver):
                    pass

    def _serve_one(self, driver: Connection) -> bool:
        """Wait for something to happen, and handle it; False once the run is over."""
        patience = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        ready = wait([driver, self._rank.connection, self._rank.process.sentinel], timeout=patience)
        if driver in ready:
            order = receive(driver)
            if isinstance(order, Release):
                return False
            self._obey(order, driver)
        # What the rank has said counts before how its process ended.
        elif self._rank.connection in ready and (result := self._result()) is not None:
            self._end(driver, Ended(outcome=result.outcome, error=result.error, has_timed_out=result.has_timed_out))
            if result.is_last:
                self._start_another()
        elif self._rank.process.sentinel in ready:
            self._replace(driver)
        elif not ready:
            self._rank.kill()
            self._replace(driver, is_killed=True)
        return True

    def _obey(self, order: Message, driver: Connection) -> None:
        if isinstance(order, AskPort):
            send(driver, Port(port=free_port(self._hello.host)))
        elif isinstance(order, Start):
            self._is_running, self._deadline = True, None
            # A process that has just died is noticed by its sentinel.
            with suppress(OSError):
                self._rank.connection.send(Order(task=order.task, place=RankPlace(**order.place)))
        elif isinstance(order, Stop):
            with suppress(OSError):
                self._rank.connection.send(Leave())
        elif isinstance(order, Abandon) and self._is_running:
            self._deadline = time.monotonic() + order.seconds
            with suppress(OSError):
                self._rank.connection.send(GiveUp())

    def _result(self) -> Result | None:
        """What the rank has sent; None if its process has ended."""
        with suppress(EOFError, OSError):
            result = self._rank.connection.recv()
            assert isinstance(result, Result)
            return result
        return None

    def _replace(self, driver: Connection, *, is_killed: bool = False) -> None:
        """Report the end of the rank's process, and start another one, which is ready when the driver starts the next attempt.

        A rank that dies may take longer to end than its peers to fail and the driver to give up: its own status counts then, too, unless
        this agent has killed it, or NCCL's watchdog has aborted it because a peer is gone.
        """
        status = self._rank.status
        is_aborted = self._deadline is not None and status == -signal.SIGABRT
        ended = Ended(status=status, was_abandoned=is_killed or is_aborted)
        if self._is_running:
            self._end(driver, ended)
        self._start_another()

    def _start_another(self) -> None:
        """Start a process in place of one that has ended or is about to."""
        self._rank.kill()
        remove(self._memory)
        self._rank = self._server.start(self._memory)

    def _end(self, driver: Connection, ended: Ended) -> None:
        self._is_running, self._deadline = False, None
        send(driver, ended)

    @contextmanager
    def _ending_the_rank(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._rank.kill()


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder in memory for the files of an agent, removed after the block. So are those that killed agents left behind.

    The socket of the fork server is there, too: a Ray worker exits without cleaning up, and one that is killed cannot.
    """
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for left in parent.glob(f"{_FOLDER}*"):
        owner = left.name.removeprefix(_FOLDER)
        if owner.isdigit() and not Path("/proc", owner).exists():
            remove(left)
    folder = parent / f"{_FOLDER}{os.getpid()}"
    remove(folder)
    folder.mkdir(mode=0o700)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder, if it exists and belongs to this user."""
    shutil.rmtree(folder, ignore_errors=True)
