"""Ranks as Ray Train workers.

Ray Train schedules the workers, monitors them, and shuts the group down when one fails; `training.worker` does the rest. For measured
reasons (docs/ARCHITECTURE.md), three features of Ray Train are not used: `report` for metrics (each call waits for a poll), its checkpoint
registry (loses completed checkpoints on a crash), and its retries (the supervisor restarts from our own checkpoints).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.ray_cluster import RayCluster
from training.launch.task import Outcome, RankTask, WorkersFailedError


class RayLauncher:
    """Runs attempts on a Ray cluster, which it starts with the first one."""

    def __init__(self, scale: ScaleSettings, *, scratch: Path) -> None:
        """`scratch` is a folder for Ray's session files."""
        self._cluster = RayCluster(
            address=scale.address,
            cpus=scale.workers * scale.cpus_per_worker,
            gpus=scale.workers if scale.gpu else 0,
            start_timeout=scale.start_timeout,
            scratch=scratch,
        )
        self._is_started = False

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt as one `fit()`; starts Ray first if necessary.

        Raises:
            WorkersFailedError: a worker failed or died, or the group did not start within `scale.start_timeout`.
            TrainingFailedError: Ray did not start on this machine.
        """
        if not self._is_started:
            on_phase("ray_start")
            self._cluster.start(imports="training.launch.ray_trainer")
            self._is_started = True
        on_phase("workers_start")
        from training.launch import ray_state  # noqa: PLC0415 - imports Ray, after its environment is set
        from training.launch.ray_trainer import run_attempt  # noqa: PLC0415 - the same

        began = time.time()
        try:
            return run_attempt(task, is_local=self._cluster.is_local)
        except WorkersFailedError:
            ray_state.keep(task, since=began)
            raise

    def close(self) -> None:
        """Stop the local Ray cluster, or disconnect from the existing one."""
        self._cluster.close()
        self._is_started = False
