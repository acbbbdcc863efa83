"""The entry of every rank under all three launchers: `run_rank`.

Ranks write to the run's folder: rank 0 its events, every rank its log and, if it fails, its failure.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from observability.runlog import Notice, Phase
from training import failures
from training.allocator import configure_allocator
from training.code.import_path import use_code
from training.launch.quick_import import collector_off
from training.launch.task import Outcome, RankPlace, RankTask
from training.logs import configure
from training.reporting import Reporter, reporting

if TYPE_CHECKING:
    from training.callbacks.epoch_gate import EpochGate
    from training.checkpoint.memory import RankMemory

logger = logging.getLogger(__name__)


def run_rank(
    task: RankTask,
    place: RankPlace,
    *,
    gate: EpochGate | None = None,
    memory: RankMemory | None = None,
    wants_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run one rank of an attempt to its end.

    Args:
        task: the attempt.
        place: the rank.
        gate: holds the run between two epochs; all ranks have one, or none.
        memory: keeps the state for the next attempt if this rank only loses its peers; all ranks have one, or none.
        wants_stop: this rank's vote to save and stop, besides the file `stop` in the run's folder.

    Raises:
        Exception: any error of the rank, after it is recorded in the run's folder.
        KeyboardInterrupt: the rank was interrupted.
    """
    configure(
        task.run_directory / "logs" / f"rank-{place.rank}.jsonl",
        run=task.run_directory.name,
        rank=place.rank,
    )
    logger.info("attempt %d: rank %d of %d, on %s", task.attempt, place.rank, place.world, socket.gethostname())
    try:
        return _run(task, place, gate, memory, wants_stop)
    except BaseException as error:
        with suppress(OSError):  # the disk is full or the folder gone: the launcher reports `error` itself
            failures.record(task.run_directory, failures.Failure.of(error, rank=place.rank), attempt=task.attempt)
        logger.exception("rank %d failed", place.rank)
        if isinstance(error, SystemExit):  # of user code; the launchers would take `sys.exit(0)` for success
            raise RuntimeError(f"sys.exit({error.code!r}) before the training ended") from error
        raise


def _run(
    task: RankTask,
    place: RankPlace,
    gate: EpochGate | None,
    memory: RankMemory | None,
    wants_stop: Callable[[], bool],
) -> Outcome:
    if task.code is not None:
        use_code(task.code.folder)
    opened = reporting(task.run_directory, task.settings.metrics) if place.rank == 0 else nullcontext(Reporter())
    with opened as reporter:
        reporter.emit(Phase(name="imports", process="rank 0"))
        os.environ.update({name: str(value) for name, value in task.settings.scale.environment.items()})
        if warning := configure_allocator(task.settings.compute.allocator):
            reporter.emit(Notice(level="warning", message=warning))
        # Imported here, so that the import is reported as a phase.
        with collector_off():
            from training.session import Session  # noqa: PLC0415

        stop = task.run_directory / "stop"
        # The ranks agree by vote (`training.step_reducer`), so one rank checks the file.
        is_asked = (lambda: stop.exists() or wants_stop()) if place.rank == 0 else wants_stop
        return Session(task, place, emit=reporter.emit, wants_stop=is_asked, gate=gate, memory=memory).run()
