"""A kill in every interval: the steps that are left per second, against those of the same run before the first kill."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from observability.benchmarks.faults.job import WORKERS, paced_job
from observability.benchmarks.faults.kill import kill_rank
from observability.benchmarks.faults.marks import steps_per_second
from observability.benchmarks.faults.sides import Documented, Platform, Side, alternately
from observability.benchmarks.faults.table import Figure

GOAL = 0.95

_STEP_S = 0.1
_WARM_UP_STEPS = 20
_LATEST = 0.7
"""Part of an interval in which its kill happens, so that the recovery belongs to it."""


def compare(*, rounds: int, intervals: int, seconds: float, scratch: Path) -> list[Figure]:
    """Run both sides in turn; the first half interval is undisturbed.

    Args:
        rounds: runs of each side.
        intervals: with a kill, in each run.
        seconds: of an interval.
        scratch: for the folders of the runs.
    """

    def measure(side: type[Side], number: int, folder: Path) -> float:
        with side(paced_job(step_seconds=_STEP_S), folder) as running:
            return _goodput(running, intervals, seconds, random.Random(number))  # noqa: S311 - the same on both sides

    ours, theirs = alternately(rounds, measure, scratch, Platform, Documented)
    return [
        Figure(name=f"goodput with a kill every {seconds:g} s", ours=ours, theirs=theirs, at_least=GOAL),
    ]


def _goodput(running: Side, intervals: int, seconds: float, chance: random.Random) -> float:
    """Steps per second with kills, as a part of those without."""
    running.wait_for_step(_WARM_UP_STEPS)
    begin = time.time()
    time.sleep(seconds / 2)
    first = time.time()
    for number in range(intervals):
        _sleep_until(first + (number + chance.uniform(0, _LATEST)) * seconds)
        kill_rank(running, chance.randrange(WORKERS))
    end = first + intervals * seconds
    _sleep_until(end + 1.0)  # until the log has the last steps
    undisturbed = steps_per_second(running.marks, begin=begin, end=first)
    goodput = steps_per_second(running.marks, begin=first, end=end) / undisturbed
    print(f"    {running.name}: {goodput:.3f} of {undisturbed:.1f} steps/s", file=sys.stderr, flush=True)
    return goodput


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
