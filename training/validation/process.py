"""The evaluator as a child process of rank 0."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from training.launch.task import RankTask
from training.validation.messages import Answer, encode

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_CLOSE_SECONDS: Final = 2.0
_CHUNK: Final = 65536
_GROUP_VARIABLES: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Rank 0's place in a process group, which its child is not part of."""


class EvaluatorDiedError(Exception):
    """The evaluator has ended; the message says how."""


class EvaluatorProcess:
    """A running evaluator. It ends with the thread that has started it, however that ends."""

    def __init__(self, task: RankTask, *, gpu: int | None) -> None:
        """Start it; it takes seconds until it reads its first step.

        Args:
            task: the attempt.
            gpu: local number of the GPU that it computes on; None is the CPU.
        """
        self._log = task.run_directory / "logs" / "evaluator.log"
        self._socket, end = socket.socketpair()
        self._received = b""
        environment = {name: value for name, value in os.environ.items() if name not in _GROUP_VARIABLES}
        inherited = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*inherited, str(_REPOSITORY)]))
        if gpu is None:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._log.parent.mkdir(exist_ok=True)
        with end, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "training.validation", str(end.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[end.fileno()],
            )
        self._send(encode({"task": task.dump(), "gpu": gpu}))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def request(self, step: int) -> None:
        """Ask for the evaluation of a step's checkpoint. If the evaluator has died, the next `answers` says so."""
        self._send(encode({"step": step}))

    def answers(self, *, timeout: float = 0.0) -> list[Answer]:
        """The answers that have come; waits up to `timeout` seconds for the first one.

        Raises:
            EvaluatorDiedError: it has ended, and all its answers have been returned.
        """
        deadline = time.monotonic() + timeout
        has_ended = False
        while not has_ended and b"\n" not in self._received:
            # Asked first: what it has sent before its end is received. Processes that read data for it may hold the connection open.
            is_over = self._process.poll() is not None
            if select.select([self._socket], [], [], 0.0 if is_over else max(0.0, deadline - time.monotonic()))[0]:
                has_ended = not self._receive()
            elif is_over:
                has_ended = True
            else:
                return []
        *lines, self._received = self._received.split(b"\n")
        if not lines:
            raise EvaluatorDiedError(self._end())
        return [Answer.decode(line) for line in lines]

    def close(self) -> None:
        """End it; what it is evaluating is lost."""
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(_CLOSE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _send(self, line: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(line)

    def _receive(self) -> bool:
        """Append what has come to what was received; false at the end of the connection."""
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionResetError:
            return False
        self._received += data
        return bool(data)

    def _end(self) -> str:
        """How the process has ended."""
        try:
            status = self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "it has closed its connection"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n") if self._log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
        return f"status {status}: {last}"
