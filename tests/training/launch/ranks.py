"""Ranks of one process group as processes of this machine, without any launcher: a second or so for a world."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tests.engines.ports import free_port
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankPlace, RankTask

P = ParamSpec("P")
T = TypeVar("T")


def on_ranks(
    world: int, function: Callable[Concatenate[RankPlace, P], T], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Call `function(place, …)` in `world` processes, each of which has its place; the results in the order of the ranks."""
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
    # What every rank imports: seconds, which this way are paid once. The last is what torch imports with the first optimizer.
    processes.set_forkserver_preload(["training.session", "torch._dynamo"])
    with ProcessPoolExecutor(world, mp_context=processes, max_tasks_per_child=1) as pool:
        return [future.result() for future in [pool.submit(function, place, *args, **kwargs) for place in places]]


def run_world(settings: TrainingSettings, folder: Path) -> Outcome:
    """Run an attempt with the ranks that the settings ask for; the outcome of rank 0."""
    folder.mkdir(parents=True, exist_ok=True)
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    return on_ranks(settings.scale.workers, _run_rank, task)[0]


def _run_rank(place: RankPlace, task: RankTask) -> Outcome:
    from training.worker import run_rank  # noqa: PLC0415 - in the rank's process

    return run_rank(task, place)
