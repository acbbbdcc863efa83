"""A worker group of Ray Train whose workers are agents: one `fit()` in a thread. It ends with the first worker that is lost."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

from ray.train import TrainingFailedError

from training.config.schema import TrainingSettings
from training.launch.agent.coordinator import Coordinator
from training.launch.loop_gate import LoopGate
from training.launch.ray_rank import serve_rank, worker_name
from training.launch.ray_trainer import dead_ranks, make_trainer
from training.launch.task import WorkersFailedError

_END_SECONDS = 30.0
"""How long Ray may take to end a group whose workers have returned or died."""


class RayGroup:
    """Workers that were asked for together."""

    def __init__(
        self,
        settings: TrainingSettings,
        coordinator: Coordinator,
        *,
        workers: int,
        folder: Path,
        is_local: bool,
        gate: LoopGate,
    ) -> None:
        """Start the workers, which takes seconds; their agents then connect to the coordinator.

        Args:
            settings: of the run.
            coordinator: of its agents.
            workers: number of the workers, all of which start or none.
            folder: for Ray Train's own files, which all nodes share.
            is_local: the cluster is on this machine.
            gate: ends the group's loop once it is closed.
        """
        name = f"group-{uuid.uuid4().hex[:8]}"
        self._names = {worker_name(name, rank) for rank in range(workers)}
        self._coordinator = coordinator
        self._came: set[str] = set()
        self._dismissed: set[str] = set()
        config: dict[str, Any] = {
            "group": name,
            "driver": coordinator.address,
            "key": coordinator.key.hex(),
            "is_loopback": is_local,
            "environment": {name: str(value) for name, value in settings.scale.environment.items()},
            "allocator": settings.compute.allocator.model_dump(mode="json"),
        }
        self._trainer = make_trainer(
            serve_rank, config, scale=settings.scale, workers=workers, folder=folder, gate=gate
        )
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fit, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether Ray has not ended it."""
        return self._thread.is_alive()

    @property
    def agents(self) -> list[str]:
        """Names of its workers that are connected."""
        found = [worker for worker in self._coordinator.agents if worker in self._names]
        self._came.update(found)
        return found

    @property
    def starting(self) -> int:
        """Workers that have not connected, and may still come."""
        return len(self._names - self._came.union(self.agents)) if self.is_alive else 0

    def dismiss(self, worker: str) -> None:
        """Let a worker end; does nothing to one of another group."""
        if worker in self._names:
            self._dismissed.add(worker)
            self._coordinator.dismiss(worker)

    def failure_of_start(self) -> WorkersFailedError | None:
        """Why it has ended before all of its workers were connected; None if it has not."""
        if self.is_alive or self._came.issuperset(self._names):
            return None
        dead = dead_ranks(self._error) if isinstance(self._error, TrainingFailedError) else []
        failure = WorkersFailedError(str(self._error or "Ray's worker group has ended"), exits=dict.fromkeys(dead))
        failure.__cause__ = self._error
        return failure

    def join(self) -> None:
        """Wait until Ray has ended it, once its agents were dismissed or released.

        Does not wait for a group that goes on to look for a missing worker, nor for one that has lost all of its agents: their nodes may
        not answer, of which Ray learns in minutes.
        """
        if not self.starting and (self.agents or self._dismissed):
            self._thread.join(_END_SECONDS)

    def _fit(self) -> None:
        try:
            self._trainer.fit()
        except Exception as error:  # noqa: BLE001 - reported by `failure_of_start`, or its agents are gone
            self._error = error
