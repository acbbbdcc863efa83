"""SIGKILL of a random rank at a random moment: how soon it is noticed, how soon the next step ends, and how many are lost."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from observability.benchmarks.faults.job import WORKERS, paced_job
from observability.benchmarks.faults.marks import Recovery, newest_step, recovery
from observability.benchmarks.faults.sides import Documented, Platform, Side, alternately
from observability.benchmarks.faults.table import Figure

DETECT_GOAL_S = 0.3
NEXT_STEP_GOAL = 0.3
"""Time to the next step relative to Ray's."""

_STEP_S = 0.05
_STEPS_BETWEEN = (160, 240)
"""Steps between two kills; after 100 committed ones the platform restarts without a delay (`recovery.progress_steps`)."""


def compare(*, rounds: int, kills: int, scratch: Path) -> list[Figure]:
    """Kill ranks of both sides in turn: the same ranks, after the same steps.

    Args:
        rounds: runs of each side.
        kills: in each run.
        scratch: for the folders of the runs.
    """

    def measure(side: type[Side], number: int, folder: Path) -> list[Recovery]:
        with side(paced_job(step_seconds=_STEP_S), folder) as running:
            return _kill(running, kills, random.Random(number))  # noqa: S311 - the same faults on both sides

    ours, theirs = ([*chain(*one)] for one in alternately(rounds, measure, scratch, Platform, Documented))
    return figures(ours, theirs)


def figures(ours: Sequence[Recovery], theirs: Sequence[Recovery]) -> list[Figure]:
    """The rows of the table."""
    return [
        Figure(
            name="rank killed, until it is noticed",
            unit="s",
            ours=[one.detect for one in ours if one.detect is not None],
            theirs=[one.detect for one in theirs if one.detect is not None],
            at_most=DETECT_GOAL_S,
        ),
        Figure(
            name="rank killed, until the next step",
            unit="s",
            ours=[one.next_step for one in ours],
            theirs=[one.next_step for one in theirs],
            ratio_at_most=NEXT_STEP_GOAL,
        ),
        Figure(
            name="rank killed, steps lost",
            ours=[one.lost_steps for one in ours],
            theirs=[one.lost_steps for one in theirs],
        ),
    ]


def kill_rank(running: Side, number: int) -> Recovery:
    """Kill a rank of a side that trains; returns when the next step has ended."""
    process = running.rank(number)
    fault = time.time()
    os.kill(process, signal.SIGKILL)
    return running.wait_for(lambda: recovery(running.marks, fault=fault))


def _kill(running: Side, kills: int, chance: random.Random) -> list[Recovery]:
    found = list[Recovery]()
    for _ in range(kills):
        running.wait_for_step(newest_step(running.marks) + chance.randint(*_STEPS_BETWEEN))
        time.sleep(chance.uniform(0, 1))
        found.append(kill_rank(running, chance.randrange(WORKERS)))
        print(f"    {running.name}: {found[-1].describe()}", file=sys.stderr, flush=True)
    return found
