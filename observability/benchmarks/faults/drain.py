"""A node is announced to go, and another one is idle: how soon a new worker group trains, and what of the steps until then is lost."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from observability.benchmarks.faults.cluster import Nodes, cluster_of
from observability.benchmarks.faults.job import SAVE_EVERY, WORKERS, paced_job
from observability.benchmarks.faults.marks import Recovery, recovery
from observability.benchmarks.faults.sides import Documented, Platform, Side, alternately
from observability.benchmarks.faults.table import Figure

GOAL = 0.4
"""Time to the next step relative to Ray's."""

_STEP_S = 0.1


def compare(*, rounds: int, notice: float, scratch: Path) -> list[Figure]:
    """Drain a node of both sides in turn.

    Args:
        rounds: runs of each side, with one drain each.
        notice: seconds until the node is killed.
        scratch: for the folders of the runs.
    """
    with cluster_of(WORKERS + 1) as nodes:
        job = paced_job(step_seconds=_STEP_S, scale={"address": nodes.address})

        def measure(side: type[Side], number: int, folder: Path) -> Recovery:
            nodes.fill()
            with side(job, folder) as running:
                chance = random.Random(number)  # noqa: S311 - the same moment on both sides
                running.wait_for_step(SAVE_EVERY + chance.randrange(SAVE_EVERY))
                return _drain(running, nodes, notice)

        ours, theirs = alternately(rounds, measure, scratch, Platform, Documented)
    return figures(ours, theirs, notice=notice)


def figures(ours: Sequence[Recovery], theirs: Sequence[Recovery], *, notice: float) -> list[Figure]:
    """The rows of the table."""
    name = f"drain with {notice:g} s notice"
    return [
        Figure(
            name=f"{name}, until the first step elsewhere",
            unit="s",
            ours=[one.next_step for one in ours],
            theirs=[one.next_step for one in theirs],
            ratio_at_most=GOAL,
        ),
        Figure(
            name=f"{name}, steps lost",
            ours=[one.lost_steps for one in ours],
            theirs=[one.lost_steps for one in theirs],
            at_most=0,
        ),
    ]


def _drain(running: Side, nodes: Nodes, notice: float) -> Recovery:
    with _drained(nodes, notice) as fault:
        found = running.wait_for(lambda: recovery(running.marks, fault=fault))
    print(f"    {running.name}: {found.describe()}", file=sys.stderr, flush=True)
    return found


@contextmanager
def _drained(nodes: Nodes, notice: float) -> Iterator[float]:
    """Unix time of the announcement that a node goes; it does, whatever the ranks do."""
    fault = time.time()
    node = nodes.drain_one(seconds=notice)
    end = threading.Timer(notice, nodes.end, args=(node,))
    end.start()
    try:
        yield fault
    finally:
        end.cancel()
        end.join()
        nodes.end(node)
