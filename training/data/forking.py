"""Processes that are forked until one starts, and that pass on why they cannot pass on a batch.

CPython before 3.11.10 can deadlock a forked child before it runs any Python code: the fork copies the lock of the list of
thread states, which another thread may hold at that moment and nobody releases in the child (python/cpython, issue 112275).
Such a child never ends by itself. Here the parent waits for a sign of life, and forks again if there is none.

A child also ends with the thread that started it. torch's own watchdog notices only a parent that dies after a worker's loop has begun;
a rank that is killed while its loader starts would leave workers for ever.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.queues
import os
import shutil
import signal
import sys
from multiprocessing import popen_fork
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from training.errors import PlatformError
from training.launch.processes import die_with_parent

PATIENCE = (10.0, 30.0, 90.0)
"""Seconds to wait for a child, attempt by attempt. One that is only slow has done nothing yet, and may be killed."""

if TYPE_CHECKING:
    _AnyQueue = multiprocessing.queues.Queue[Any]
else:
    _AnyQueue = multiprocessing.queues.Queue  # generic for type checkers only

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux has what torch shares between processes


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


class _Queue(_AnyQueue):
    """A queue of (number, item) in which an error takes the place of an item that its thread cannot send.

    That thread prints the error and goes on with the next item, so that who waits for this one would wait for ever.
    """

    def _on_queue_feeder_error(self, error: Exception, item: tuple[int, object]) -> None:
        self.put((item[0], _not_sent(item[1], error)))


class StartedForkContext(ForkContext):
    """multiprocessing's context `fork`, with processes that have started when `start` returns."""

    Process = _Process

    def Queue(self, maxsize: int = 0) -> _Queue:  # noqa: N802 - as the base class has it
        """A queue of (number, item)."""
        return _Queue(maxsize, ctx=self.get_context())


def loader_processes() -> list[int]:
    """The ids of the processes of the data loader that this process has forked and that run."""
    return [one.pid for one in multiprocessing.active_children() if isinstance(one, _Process) and one.pid is not None]


def _not_sent(batch: object, error: Exception) -> PlatformError:
    """What a batch is replaced with that a process of the data loader could not hand over."""
    first = str(error).partition("\n")[0]
    if not (isinstance(error, OSError) or "shared memory" in first):
        return PlatformError(
            f"a process of the data loader could not pass on a batch: {first}",
            remedy="let `read` of the dataset return plain tensors without gradients; or set data.loader_workers=0",
        )
    full = ""
    if _SHARED_MEMORY.exists():
        memory = shutil.disk_usage(_SHARED_MEMORY)
        full = (
            f"; {_SHARED_MEMORY} has {memory.total / 2**20:,.0f} MiB, of which {memory.free / 2**20:,.0f} are free now"
        )
    return PlatformError(
        f"a process of the data loader could not pass on {_bytes(batch) / 2**20:,.0f} MiB: {first}{full}",
        remedy="give the machine or the container more shared memory (docker run --shm-size=8g); or lower data.prefetch, "
        "data.loader_workers (0 needs none) or loop.global_batch",
    )


def _bytes(batch: object) -> int:
    """The bytes of the tensors in a batch, or in the micro-batches of a step."""
    if isinstance(batch, Tensor):
        return batch.nbytes
    parts = batch if isinstance(batch, list | tuple) else getattr(batch, "__dict__", {}).values()
    return sum(map(_bytes, parts))
