"""What every rank does, whoever started it: meet its peers, build data and model, restore, train, evaluate, leave results.

`run_rank` is the entry of all three launchers. Ranks write to the run's folder: rank 0 its events, every rank its log and, should it
fail, its failure.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta

from observability.runlog import Phase
from training import failures
from training.launch.task import Outcome, RankPlace, RankTask
from training.logs import configure
from training.network import interface_towards
from training.reporting import Reporter, reporting

logger = logging.getLogger(__name__)


def run_rank(task: RankTask, place: RankPlace) -> Outcome:
    """Run one rank of an attempt to its end.

    Raises:
        Exception: whatever went wrong, after a record of it was left in the run's folder.
    """
    configure(
        task.run_directory / "logs" / f"rank-{place.rank}.jsonl",
        run=task.run_directory.name,
        rank=place.rank,
    )
    logger.info("attempt %d: rank %d of %d, on %s", task.attempt, place.rank, place.world, socket.gethostname())
    try:
        return _run(task, place)
    except BaseException as error:
        failures.record(task.run_directory, failures.Failure.of(error, rank=place.rank), attempt=task.attempt)
        logger.exception("rank %d failed", place.rank)
        raise


def _run(task: RankTask, place: RankPlace) -> Outcome:
    opened = reporting(task.run_directory, task.settings.metrics) if place.rank == 0 else nullcontext(Reporter())
    with opened as reporter:
        reporter.emit(Phase(name="imports", process="rank 0"))
        # Imported here and not above, so that the time it takes shows as a phase of its own.
        from training.session import Session  # noqa: PLC0415

        reporter.emit(Phase(name="connect", process="rank 0"))
        scale = task.settings.scale
        with joined(place, gpu=scale.gpu, timeout_seconds=scale.collective_timeout):
            stop = task.run_directory / "stop"
            # The ranks agree by vote (`training.pulse`), so one that looks is enough.
            wants_stop = stop.exists if place.rank == 0 else _never
            return Session(task, place, emit=reporter.emit, wants_stop=wants_stop).run()


def _never() -> bool:
    return False


@contextmanager
def joined(place: RankPlace, *, gpu: bool, timeout_seconds: float) -> Iterator[None]:
    """Be a member of the process group of the world for the length of the block; a world of one needs none.

    Gloo is told its interface, loopback where all ranks are on this machine: it would go by the host's name otherwise.
    """
    if place.world == 1:
        yield
        return
    import torch.distributed as dist  # noqa: PLC0415

    interface = "lo" if place.local_world == place.world else interface_towards(place.master_address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"tcp://{place.master_address}:{place.master_port}",
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=timeout_seconds),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
