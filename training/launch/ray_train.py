"""Ranks on Ray Train workers.

Ray Train schedules the workers, monitors them, and shuts the group down when one dies. A worker is the agent of a rank, whose process can
die without it (`training.launch.agent`); `training.worker` does the rest. For measured
reasons (docs/ARCHITECTURE.md), three features of Ray Train are not used: `report` for metrics (each call waits for a poll), its checkpoint
registry (loses completed checkpoints on a crash), and its retries (the supervisor restarts from our own checkpoints).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from training.config.schema import ScaleSettings
from training.launch.ray_cluster import RayCluster
from training.launch.task import Outcome, RankTask, WorkersFailedError

if TYPE_CHECKING:
    from training.launch.ray_group import RayGroup


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
        self._group: RayGroup | None = None

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt on the workers of the attempt before, or on new ones if one of those has died; starts Ray first if necessary.

        Raises:
            WorkersFailedError: a rank failed or died, or the group did not start within `scale.start_timeout`.
            TrainingFailedError: Ray did not start on this machine.
        """
        if not self._is_started:
            on_phase("ray_start")
            self._cluster.start(imports="training.launch.ray_group")
            self._is_started = True
        on_phase("workers_start")
        from training.launch import ray_state  # noqa: PLC0415 - imports Ray, after its environment is set

        began = time.time()
        group = self._group_for(task)
        try:
            return group.run(task)
        except WorkersFailedError:
            if not group.is_whole:
                ray_state.keep(task, since=began)
            raise

    def close(self) -> None:
        """Stop the workers, and the local Ray cluster, or disconnect from the existing one."""
        self._end_group()
        self._cluster.close()
        self._is_started = False

    def _group_for(self, task: RankTask) -> RayGroup:
        from training.launch.ray_group import RayGroup  # noqa: PLC0415 - imports Ray, after its environment is set

        if self._group is not None and not self._group.fits(task.settings):
            self._end_group()
        if self._group is None:
            folder = task.run_directory / "ray"
            self._group = RayGroup(task.settings, folder=folder, is_local=self._cluster.is_local)
        return self._group

    def _end_group(self) -> None:
        if self._group is not None:
            self._group.stop()
            self._group = None
