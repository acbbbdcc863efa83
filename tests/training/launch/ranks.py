"""Runs the ranks of a process group as processes on this machine, without a launcher, in about a second."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tests.engines.ports import free_port
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankPlace, RankTask
from training.worker import run_rank

P = ParamSpec("P")
T = TypeVar("T")


def on_ranks(
    world: int, function: Callable[Concatenate[RankPlace, P], T], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Call `function(place, …)` in one process per rank; returns the results in rank order."""
    port = free_port()
    places = [
        RankPlace(
            rank=rank,
            world=world,
            local_rank=rank,
            local_world=world,
            master_address="127.0.0.1",
            master_port=port,
        )
        for rank in range(world)
    ]
    processes = multiprocessing.get_context("forkserver")
    # Import once what every rank needs: it takes seconds. torch imports torch._dynamo with the first optimizer.
    processes.set_forkserver_preload(["training.session", "torch._dynamo"])
    with ProcessPoolExecutor(world, mp_context=processes, max_tasks_per_child=1) as pool:
        return [future.result() for future in [pool.submit(function, place, *args, **kwargs) for place in places]]


def run_world(settings: TrainingSettings, folder: Path) -> Outcome:
    """Run an attempt with the configured number of ranks; returns the outcome of rank 0."""
    folder.mkdir(parents=True, exist_ok=True)
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    return on_ranks(settings.scale.workers, _run_rank, task)[0]


def _run_rank(place: RankPlace, task: RankTask) -> Outcome:
    return run_rank(task, place)
