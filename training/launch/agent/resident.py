"""The process of a rank: it runs attempts until its agent is gone, and keeps its state between them if it only lost its peers."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from training.evidence import stack_on_death
from training.launch.processes import die_with_parent, set_process_name
from training.launch.ray_client import connect, disconnect
from training.launch.task import RankPlace, RankTask
from training.recovery.causes import has_timed_out, is_communication_error
from training.worker import run_rank

if TYPE_CHECKING:
    from training.checkpoint.memory import RankMemory

UNUSABLE = 70
"""Exit status of a process that has recorded its failure and cannot run another attempt; EX_SOFTWARE of sysexits.h."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """An attempt to run: `RankTask.dump`, and the place of the rank."""

    task: dict[str, Any]
    place: RankPlace


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Vote to commit and stop at the next step."""


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The attempt has failed elsewhere: leave the collectives that wait for peers."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How an attempt ended.

    Attributes:
        outcome: `Outcome.dump`, if it did not fail.
        error: message of the exception, which is recorded in the run's folder.
        has_timed_out: a collective did, because a peer did not come.
        is_last: the process ends, because it cannot run another attempt.
    """

    outcome: dict[str, Any] | None = None
    error: str = ""
    has_timed_out: bool = False
    is_last: bool = False


def serve_attempts(agent: Connection, memory: Path) -> None:
    """Run the attempts that the agent orders, until it closes the connection.

    Args:
        agent: sends `Order`, `Leave` and `GiveUp`, gets a `Result` for every order.
        memory: folder in which the state is kept between attempts; of this process alone.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles a terminal's Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not Ray's
    orders: Queue[Order] = Queue()
    is_leaving = threading.Event()
    threading.Thread(target=_listen, args=(agent, orders, is_leaving), name="agent", daemon=True).start()
    from training.checkpoint.memory import RankMemory  # noqa: PLC0415 - imports torch, which the agent does not need

    kept = RankMemory(memory)
    while True:
        order = orders.get()
        result = _run(order, kept, is_leaving.is_set)
        is_leaving.clear()
        agent.send(result)
        if result.is_last:
            # Without cleaning up: what a failed kernel or library left behind must not delay or change the end.
            os._exit(UNUSABLE)
        gc.collect()  # what the attempt has built, before the next one builds it again


def _listen(agent: Connection, orders: Queue[Order], is_leaving: threading.Event) -> None:
    """Pass orders on; leave collectives when the attempt has failed elsewhere; end with the agent."""
    while True:
        try:
            order = agent.recv()
        except (EOFError, OSError):
            os._exit(0)
        if isinstance(order, Leave):
            is_leaving.set()
        elif isinstance(order, GiveUp):
            _leave_collectives()
        else:
            orders.put(order)


def _run(order: Order, kept: RankMemory, wants_stop: Callable[[], bool]) -> Result:
    task = RankTask.load(order.task)
    kept.serve(task.run_directory)
    set_process_name(f"rtp-rank-{order.place.rank}")
    try:
        with stack_on_death(task.run_directory, attempt=task.attempt, rank=order.place.rank):
            connect(task.settings, rank=order.place.rank)
            outcome = run_rank(task, order.place, memory=kept, wants_stop=wants_stop)
            disconnect()
            # The next attempt may be of another run, with other code.
            return Result(outcome=outcome.dump(), is_last=True)
    except Exception as error:  # noqa: BLE001 - recorded by `run_rank`
        result = Result(
            error=f"{type(error).__name__}: {error}",
            has_timed_out=has_timed_out(error),
            is_last=_has_gpu() or not is_communication_error(error),
        )
        # The frames hold the model and the optimizer, of which the next attempt builds others.
        traceback.clear_frames(error.__traceback__)
    return result


def _has_gpu() -> bool:
    """Whether this process uses a GPU. NCCL's watchdog ends a process whose peer is gone, and CUDA one whose kernel failed."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _leave_collectives() -> None:
    """Let the collectives fail that wait for a rank which does not come."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized() and not _has_gpu():
        distributed.group.WORLD.abort()
