"""Faults of whole nodes, on a Ray cluster of several hosts: network namespaces, each with its own raylet."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psutil

from observability.runlog import Notice, TrainingStarted, read_all, select
from tests.engines.hosts import Host, hosts
from tests.engines.ray_cluster import short_folder
from tests.engines.ray_nodes import RayNodes
from tests.faults.cell import Cell, Fault, fixed, two_ranks
from tests.faults.run import IN_MEMORY, FaultedRun, name_of, on_namespace
from training.config.schema import TrainingSettings

_STEP = 100
_NOTICE_SECONDS = 20
_WORKERS = 2

_CHOSEN = fixed(two_ranks(loop={"epochs": 60}, checkpoint={"every_steps": 50}))
_PARTITIONED = fixed(two_ranks(loop={"epochs": 60}, checkpoint={"every_steps": 50}, scale={"collective_timeout": 5}))
_WITHOUT_SPARE = fixed(two_ranks(loop={"epochs": 300}, checkpoint={"every_steps": 100_000, "keep_best": 0}))
_DRAINED = fixed(two_ranks(loop={"epochs": 150}, checkpoint={"every_steps": 100_000, "keep_best": 0}))


class ClusterRun(FaultedRun):
    """A run on a cluster: a head, two workers with a CPU each, and spare hosts, which have joined or not."""

    def __init__(self, settings: TrainingSettings, folder: Path, machines: list[Host], undo: ExitStack) -> None:
        self._folder = folder
        self._machines = machines
        self._undo = undo
        self.nodes = self._start_cluster("a")
        self.spares = machines[1 + _WORKERS :]
        scale = settings.scale.model_copy(update={"address": self.nodes.address})
        super().__init__(
            settings.model_copy(update={"scale": scale}),
            folder,
            prefix=self.nodes.head.prefix,
            environment=self.nodes.environment,
        )

    def _start_cluster(self, name: str) -> RayNodes:
        folder = self._folder / name
        folder.mkdir()
        nodes = RayNodes(self._machines[0], folder)
        self._undo.callback(nodes.stop)
        for host in self._machines[1 : 1 + _WORKERS]:
            nodes.join(host)
        return nodes

    def processes(self) -> list[psutil.Process]:
        """Its ranks and their agents on all hosts, and what the driver has started."""
        found = super().processes()
        for host in self._machines:
            ranks = [one for one in on_namespace(host.namespace) if name_of(one).startswith("rtp-rank-")]
            for one in [*ranks, *(parent for rank in ranks for parent in rank.parents()[:2])]:
                self._seen.setdefault(one.pid, one)
            found += ranks
        return found

    def victim(self) -> Host:
        """The host of rank 1, once the run has made the step of the fault."""
        self.wait_for_step(_STEP)
        return next(host for host in self.nodes.workers if "rtp-rank-1" in map(name_of, on_namespace(host.namespace)))

    def lose(self, host: Host) -> None:
        """Kill a node; what it has in memory goes with it."""
        agents = [process.pid for process in on_namespace(host.namespace)]
        self.nodes.lose(host)
        for pid in agents:
            shutil.rmtree(IN_MEMORY / f"rtp-rank-{pid}", ignore_errors=True)

    def restart_cluster(self) -> None:
        """Start a new head with new workers in place of the old ones, as KubeRay does."""
        self.nodes.stop()
        self.nodes = self._start_cluster("b")


@contextmanager
def run_on_cluster(settings: TrainingSettings, *, spares: int = 1) -> Iterator[ClusterRun]:
    """A run on a cluster, whose spare hosts have not joined."""
    with hosts(1 + _WORKERS + spares) as machines, short_folder() as folder, ExitStack() as undo:
        run = ClusterRun(settings, folder, list(machines), undo)
        undo.callback(run.close)
        yield run


@contextmanager
def _with_spare(settings: TrainingSettings) -> Iterator[FaultedRun]:
    with run_on_cluster(settings) as run:
        run.nodes.join(*run.spares)
        yield run


def _lose_node(run: FaultedRun) -> float:
    """SIGKILL of every process of the node of rank 1."""
    assert isinstance(run, ClusterRun)
    host = run.victim()
    began = time.time()
    run.lose(host)
    return began


def _lose_head(run: FaultedRun) -> float:
    """SIGKILL of the head's processes, and of the driver on it."""
    assert isinstance(run, ClusterRun)
    run.wait_for_step(_STEP)
    began = time.time()
    run.processes()
    run.nodes.lose(run.nodes.head)
    run.kill_driver()
    return began


def _restart_cluster(run: FaultedRun) -> None:
    """A new cluster; the ranks of the old one have ended by themselves."""
    assert isinstance(run, ClusterRun)
    left = run.left_behind()
    assert not [one for one in left if one.startswith("process")], left
    run.restart_cluster()


def _partition(run: FaultedRun) -> float:
    """Take the link of the node of rank 1 down: nothing is closed, nobody answers."""
    assert isinstance(run, ClusterRun)
    host = run.victim()
    began = time.time()
    subprocess.run(["ip", "link", "set", host.outside, "down"], check=True)
    run.wait_for(lambda event: isinstance(event, TrainingStarted) and event.time > began)
    run.lose(host)
    return began


def _drain(run: FaultedRun) -> float:
    """Give notice to the node of rank 1, and kill it when the notice is over.

    Ray is told at the end of `ray drain-node`, which takes seconds.
    """
    assert isinstance(run, ClusterRun)
    host = run.victim()
    began = run.nodes.drain(host, seconds=_NOTICE_SECONDS)
    time.sleep(_NOTICE_SECONDS)
    run.lose(host)
    return began


def _drain_without_spare(run: FaultedRun) -> float:
    """Another node joins when the drained one has gone."""
    began = _drain(run)
    assert isinstance(run, ClusterRun)
    run.nodes.join(*run.spares)
    return began


def _has_left_early(run: FaultedRun) -> None:
    """The ranks moved to the spare from the step that they saved, long before the node went."""
    events = read_all(run.folder)
    second = select(events, TrainingStarted)[1]
    (moved,) = [event.message for event in select(events, Notice) if "being drained" in event.message]
    assert moved.startswith("the node of rank 1 is being drained")
    assert moved.endswith(f"saved step {second.start_step}, continuing from it")


_AT_STEP = f"step {_STEP}"

CELLS: Final = (
    Cell(
        "node-lost",
        Fault("SIGKILL of the node of rank 1, with a spare", _AT_STEP, "lost_node"),
        _CHOSEN,
        _lose_node,
        run_on=_with_spare,
    ),
    Cell(
        "head-lost",
        Fault("SIGKILL of the head and the driver on it; resumed on a new cluster", _AT_STEP),
        _CHOSEN,
        _lose_head,
        status=-signal.SIGKILL,
        repair=_restart_cluster,
        run_on=run_on_cluster,
    ),
    Cell(
        "node-partitioned",
        Fault("link of the node of rank 1 down, with a spare; scale.collective_timeout=5", _AT_STEP, "lost_node"),
        _PARTITIONED,
        _partition,
        reference=_CHOSEN,
        run_on=_with_spare,
    ),
    Cell(
        "drain-with-spare",
        Fault(f"notice of {_NOTICE_SECONDS} s for the node of rank 1, with a spare", _AT_STEP),
        _DRAINED,
        _drain,
        most_lost=0,
        check=_has_left_early,
        run_on=_with_spare,
    ),
    Cell(
        "drain-without-spare",
        Fault(f"notice of {_NOTICE_SECONDS} s for the node of rank 1; a node joins after that", _AT_STEP),
        _WITHOUT_SPARE,
        _drain_without_spare,
        most_lost=0,
        run_on=run_on_cluster,
    ),
)
