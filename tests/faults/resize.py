"""Elastic runs whose number of workers changes while they train: on request, and because nodes join.

With fixed logical shards, any number of workers computes the same bits: the weights are those of a run on two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from observability.goodput import GoodputLedger
from observability.runlog import TrainingStarted, read_all, select
from tests.faults.cell import Cell, Fault, Settings, fixed, two_ranks
from tests.faults.hosts import ClusterRun, run_on_cluster
from tests.faults.run import FaultedRun
from training.rundir import RunDirectory

_STEP = 100


def _elastic(workers: str | int, *, epochs: int = 100) -> Settings:
    """Two workers at first. New ones take seconds to start, while the run trains on."""
    return fixed(
        two_ranks(
            loop={"epochs": epochs, "logical_shards": 4},
            checkpoint={"every_steps": 100_000, "keep_best": 0},
            scale={"workers": workers},
        )
    )


def _ask_for(run: FaultedRun, workers: int) -> None:
    """Ask for at most so many workers, and wait until the run trains on them."""
    RunDirectory(run.folder).request_workers(workers)
    _wait_for_workers(run, workers)


def _wait_for_workers(run: FaultedRun, workers: int) -> None:
    run.wait_for(lambda event: isinstance(event, TrainingStarted) and event.world == workers)


def _leave_and_return(run: FaultedRun) -> float:
    """One worker instead of two, and two again."""
    run.wait_for_step(_STEP)
    began = time.time()
    _ask_for(run, 1)
    run.wait_for_step(2 * _STEP)
    _ask_for(run, 2)
    return began


def _grow_and_leave(run: FaultedRun) -> float:
    """Two nodes join, and the run grows by itself; then it is asked to do without two workers."""
    assert isinstance(run, ClusterRun)
    run.wait_for_step(_STEP)
    for host in run.spares:
        run.nodes.join(host)
    began = time.time()
    _wait_for_workers(run, 4)
    run.wait_for_step(2 * _STEP)
    _ask_for(run, 2)
    return began


def _had(*worlds: int) -> Callable[[FaultedRun], None]:
    """Check that the run has had these numbers of workers; it may have grown one by one. Nothing failed that was to be detected."""

    def check(run: FaultedRun) -> None:
        found = [one.world for one in select(read_all(run.folder), TrainingStarted)]
        assert [world for world in found if world in worlds] == list(worlds), found
        seconds = GoodputLedger.of_run(run.folder).seconds
        assert seconds["detection"] == 0, seconds

    return check


CELLS: Final = (
    Cell(
        "resize-2-1-2",
        Fault("an elastic run is asked for 1 worker, and for 2 again", f"step {_STEP}"),
        _elastic("1-2"),
        _leave_and_return,
        reference=_elastic(2),
        most_lost=0,
        check=_had(2, 1, 2),
    ),
    Cell(
        "resize-2-4-2",
        Fault("two nodes join an elastic run, which then is asked for 2 workers", f"step {_STEP}"),
        _elastic("2-4", epochs=200),
        _grow_and_leave,
        reference=_elastic(2, epochs=200),
        most_lost=0,
        check=_had(2, 4, 2),
        run_on=partial(run_on_cluster, spares=2),
    ),
)
