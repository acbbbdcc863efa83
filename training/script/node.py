"""The command on one node: the actor that Ray places there. Ray itself is not imported."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from training.code.kept import UNPACKED
from training.launch.pod_lock import holding_the_pod
from training.logs import JsonFormatter, pod_log
from training.network import free_port
from training.script.process import CommandProcess
from training.script.variables import NodePlace, environment_of

_KEPT_LINES = 100
"""Last lines of a node that does not print to the driver's log, for the case that its command fails."""

_WAITING_LINES = 10_000
"""Lines that wait for the driver; the command waits until it has taken some."""


@dataclass(frozen=True, kw_only=True)
class NodeAddress:
    """Where a node is.

    Attributes:
        host: its name; in a cluster that of its pod.
        address: its IP address.
        port: a port there that was free.
        node_id: its id in Ray.
    """

    host: str
    address: str
    port: int
    node_id: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What has happened on a node since the last time.

    Attributes:
        lines: new lines of output; of a node that keeps only its last lines, those, with its exit status.
        status: exit status of the command; None while it runs.
    """

    lines: tuple[str, ...]
    status: int | None


class CommandNode:
    """Runs the command on its node. Its methods are called concurrently."""

    def __init__(self, *, job: str, rank: int) -> None:
        """Start nothing yet.

        Args:
            job: name of the job, for the lines in the pod's log.
            rank: number of the node, which those lines have as their rank.
        """
        self._pod = ExitStack()
        self._pod.enter_context(holding_the_pod())
        self._is_printed = rank == 0
        self._log = pod_log(JsonFormatter(run=job, rank=rank))
        self._command: CommandProcess | None = None
        self._lines: deque[str] = deque(maxlen=None if self._is_printed else _KEPT_LINES)
        self._changed = threading.Condition()

    def address(self, address: str, node_id: str) -> NodeAddress:
        """Where this node is, whose IP address and id are known."""
        return NodeAddress(host=socket.gethostname(), address=address, port=free_port(address), node_id=node_id)

    def start(self, text: str, place: NodePlace, output: Path) -> None:
        """Start the command, in the folder of the job's code, else in the folder for its output.

        Raises:
            OSError: it cannot be started.
        """
        unpacked = os.environ.get(UNPACKED)
        code = Path(unpacked) if unpacked else None
        environment = environment_of(os.environ, place, output=output, code=code)
        self._command = CommandProcess(text, environment=environment, folder=code or output, on_line=self._take)
        threading.Thread(target=self._report_end, args=(self._command,), daemon=True).start()

    def poll(self, seconds: float) -> Progress:
        """What has happened since the last call; waits up to `seconds` for that."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._status() is not None or (self._is_printed and self._lines), timeout=seconds
            )
            status = self._status()
            if not self._is_printed and status is None:
                return Progress(lines=(), status=None)
            lines = tuple(self._lines)
            self._lines.clear()
            self._changed.notify_all()
            return Progress(lines=lines, status=status)

    def terminate(self) -> None:
        """Send SIGTERM to the command."""
        if self._command is not None:
            self._command.terminate()

    def kill(self) -> None:
        """Kill the command."""
        if self._command is not None:
            self._command.kill()

    def _status(self) -> int | None:
        return None if self._command is None else self._command.status

    def _take(self, line: str) -> None:
        for handler in self._log:
            record = {"name": "command", "levelno": logging.INFO, "levelname": "INFO", "msg": line}
            handler.handle(logging.makeLogRecord(record))
        with self._changed:
            self._changed.wait_for(lambda: not self._is_printed or len(self._lines) < _WAITING_LINES)
            self._lines.append(line)
            self._changed.notify_all()

    def _report_end(self, command: CommandProcess) -> None:
        command.wait()
        with self._changed:
            self._changed.notify_all()
