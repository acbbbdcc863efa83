"""Ranks on Ray Train workers.

Ray Train schedules the workers and notices one that dies. A worker is the agent of a rank, whose process can die without it
(`training.launch.agent`). `training.launch.ray_pool` says which workers a run has; `training.worker` does the rest. For measured
reasons (docs/ARCHITECTURE.md), three features of Ray Train are not used: `report` for metrics (each call waits for a poll), its
checkpoint registry (loses completed checkpoints on a crash), and its retries (the supervisor restarts from our own checkpoints).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from training.config.schema import ScaleSettings
from training.launch.loop_gate import LoopGate
from training.launch.ray_cluster import RayCluster
from training.launch.task import Outcome, RankTask, WorkersFailedError, unheard
from training.preflight import this_machine

if TYPE_CHECKING:
    from training.launch.ray_pool import RayPool


_LEAVE_SECONDS = 5.0
"""For calls of Ray that run when the driver leaves the cluster: a poll of workers takes 0.4 s, their start a few seconds."""


class RayLauncher:
    """Runs attempts on a Ray cluster, which it starts with the first one."""

    def __init__(self, scale: ScaleSettings, *, scratch: Path) -> None:
        """`scratch` is a folder for Ray's session files."""
        workers = _most_here(scale) if scale.is_elastic and scale.address is None else scale.workers
        self._cluster = RayCluster(
            address=scale.address,
            cpus=workers * scale.cpus_per_worker,
            gpus=workers if scale.gpu else 0,
            start_timeout=scale.start_timeout,
            scratch=scratch,
        )
        self._gate: LoopGate | None = None  # of the connection to the cluster, while there is one
        self._pool: RayPool | None = None

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        """Run the attempt on the workers of the one before, and on others in place of those that are gone; starts Ray first if necessary.

        Raises:
            WorkersFailedError: a rank failed or died, or too few workers started within `scale.start_timeout`.
            TrainingFailedError: Ray did not start on this machine.
        """
        if self._gate is None:
            on_phase("ray_start")
            self._cluster.start(imports="training.launch.ray_pool")
            self._gate = LoopGate()
        on_phase("workers_start")
        from training.launch import ray_state  # noqa: PLC0415 - imports Ray, after its environment is set

        began = time.time()
        pool = self._pool_of(task, self._gate)
        try:
            return pool.run(task, notify=notify)
        except WorkersFailedError:
            if pool.has_lost:
                ray_state.keep(task, since=began)
            raise

    def close(self) -> None:
        """Stop the workers, and the local Ray cluster, or disconnect from the existing one."""
        self._end_pool()
        # A group whose node does not answer, or that still starts, has not ended; without the cluster, its next call would fail.
        if self._gate is not None:
            self._gate.close(seconds=_LEAVE_SECONDS)
            self._gate = None
        self._cluster.close()

    def _end_pool(self) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool = None

    def _pool_of(self, task: RankTask, gate: LoopGate) -> RayPool:
        from training.launch.ray_pool import RayPool  # noqa: PLC0415 - imports Ray, after its environment is set

        if self._pool is not None and not self._pool.fits(task):
            self._end_pool()
        if self._pool is None:
            self._pool = RayPool(task, is_local=self._cluster.is_local, gate=gate)
        return self._pool


def _most_here(scale: ScaleSettings) -> int:
    """The most workers that an elastic run has room for on this machine."""
    machine = this_machine()
    return min(scale.workers, machine.gpus if scale.gpu else machine.cpus // scale.cpus_per_worker)
