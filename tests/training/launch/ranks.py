"""Runs the ranks of a process group as processes on this machine, without a launcher, in about a second."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from traceback import format_exc
from typing import Any, Concatenate, ParamSpec, TypeVar

from tests.engines.ports import free_port
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankPlace, RankTask
from training.worker import run_rank

P = ParamSpec("P")
T = TypeVar("T")


def on_ranks(
    world: int, function: Callable[Concatenate[RankPlace, P], T], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Call `function(place, …)` in one process per rank; returns the results in rank order.

    The exception of the lowest rank that raised one is raised here, once all ranks have ended. Where a process dies without a result,
    its peers are killed: they would wait for it until their collective times out.
    """
    processes = multiprocessing.get_context("forkserver")
    # Import once what every rank needs: it takes seconds.
    processes.set_forkserver_preload(["training.launch.agent.preloaded"])
    ranks: list[BaseProcess] = []
    answers: list[Connection] = []
    port = free_port()
    for rank in range(world):
        place = RankPlace(
            rank=rank, world=world, local_rank=rank, local_world=world, master_address="127.0.0.1", master_port=port
        )
        answer, end = processes.Pipe(duplex=False)
        process: BaseProcess = processes.Process(target=_answer, args=(end, partial(function, place, *args, **kwargs)))
        process.start()
        end.close()
        ranks.append(process)
        answers.append(answer)
    try:
        results = _results(ranks, answers)
        for process in ranks:
            process.join()
        return results
    finally:
        for process in ranks:
            process.kill()


def _results(ranks: list[BaseProcess], answers: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(ranks):
        ready = wait([answer for rank, answer in enumerate(answers) if rank not in results])
        for rank in [rank for rank, answer in enumerate(answers) if answer in ready]:
            try:
                results[rank] = answers[rank].recv()
            except EOFError:
                ranks[rank].join()
                raise RuntimeError(f"rank {rank} ended without a result, with status {ranks[rank].exitcode}") from None
    for rank in range(len(ranks)):
        if isinstance(result := results[rank], _Raised):
            result.error.add_note(f"rank {rank}: {result.traceback}")
            raise result.error
    return [results[rank] for rank in range(len(ranks))]


@dataclass(frozen=True)
class _Raised:
    error: Exception
    traceback: str


def _answer(end: Connection, call: Callable[[], object]) -> None:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - raised by the caller
        result = _Raised(error.with_traceback(None), format_exc())
    # Tensors by value: multiprocessing would share their memory, for which this process would have to live on.
    end.send_bytes(pickle.dumps(result))


def run_world(settings: TrainingSettings, folder: Path) -> Outcome:
    """Run an attempt with the configured number of ranks; returns the outcome of rank 0."""
    folder.mkdir(parents=True, exist_ok=True)
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    return on_ranks(settings.scale.workers, _run_rank, task)[0]


def _run_rank(place: RankPlace, task: RankTask) -> Outcome:
    return run_rank(task, place)
