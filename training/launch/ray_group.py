"""A worker group of Ray Train whose workers are agents: one `fit()` in a thread, on which the driver runs one attempt after the other."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.train import TrainingFailedError

from training.config.schema import AllocatorSettings, TrainingSettings
from training.launch.agent.coordinator import Coordinator
from training.launch.drain_watch import DrainWatch
from training.launch.ray_rank import serve_rank
from training.launch.ray_trainer import dead_ranks, make_trainer
from training.launch.task import Outcome, RankTask, WorkersFailedError

_LOOPBACK = "127.0.0.1"
_END_SECONDS = 30.0
"""How long Ray may take to end a group whose workers have returned or died."""


class RayGroup:
    """The agents of as many ranks as the settings ask for."""

    def __init__(self, settings: TrainingSettings, *, folder: Path, is_local: bool) -> None:
        """Start the workers, which takes seconds; the first `run` waits for them.

        Args:
            settings: of the run.
            folder: for Ray Train's own files, which all nodes share.
            is_local: the cluster is on this machine.
        """
        self._needs = needs_of(settings)
        self._coordinator = Coordinator(
            host=_LOOPBACK if is_local else str(ray.util.get_node_ip_address()), world=settings.scale.workers
        )
        config: dict[str, Any] = {
            "driver": self._coordinator.address,
            "key": self._coordinator.key.hex(),
            "is_loopback": is_local,
            "environment": {name: str(value) for name, value in settings.scale.environment.items()},
            "allocator": settings.compute.allocator.model_dump(mode="json"),
        }
        self._trainer = make_trainer(serve_rank, config, scale=settings.scale, folder=folder, is_local=is_local)
        self._error: Exception | None = None
        self._is_local = is_local
        self._is_leaving = False
        self._drains: DrainWatch | None = None
        # Ray's own timeout, of the start of the workers, comes first.
        self._patience = 2 * settings.scale.start_timeout
        self._deadline = time.monotonic() + self._patience
        self._thread = threading.Thread(target=self._fit, name="ray-train", daemon=True)
        self._thread.start()

    @property
    def is_whole(self) -> bool:
        """Whether no worker has died."""
        return self._thread.is_alive() and self._coordinator.has_all

    def fits(self, settings: TrainingSettings) -> bool:
        """Whether an attempt with these settings can run on this group. Of a local one no worker is replaced."""
        is_usable = self.is_whole if self._is_local else self._thread.is_alive()
        return is_usable and not self._is_leaving and self._needs == needs_of(settings)

    def run(self, task: RankTask) -> Outcome:
        """Run an attempt; it is `moving` if a node of the group is being drained, and then this group is of no more use.

        Raises:
            WorkersFailedError: a rank failed or died, or the group did not start.
        """
        self._deadline = time.monotonic() + self._patience
        self._drains = None if self._is_local else DrainWatch(self._coordinator, task)
        outcome = self._coordinator.run(task, check=self._check)
        if outcome.status != "stopped" or self._drains is None or not self._drains.reason:
            return outcome
        self._is_leaving = True
        return replace(outcome, status="moving", reason=self._drains.reason)

    def stop(self) -> None:
        """End the ranks and the workers. Ray goes on to look for a worker that is missing until the driver disconnects."""
        self._coordinator.release()
        if self._is_local or self.is_whole:
            self._thread.join(_END_SECONDS)

    def _fit(self) -> None:
        try:
            self._trainer.fit()
        except Exception as error:  # noqa: BLE001 - raised by `_check`, in the thread that waits
            self._error = error

    def _check(self) -> None:
        """Look for drained nodes; raise if Ray has ended the group, or its agents do not come."""
        if self._error is not None:
            dead = dead_ranks(self._error) if isinstance(self._error, TrainingFailedError) else []
            raise WorkersFailedError(str(self._error), exits=dict.fromkeys(dead)) from self._error
        if not self._thread.is_alive():
            raise WorkersFailedError("Ray's worker group has ended")
        if self._drains is not None and self._coordinator.has_all:
            self._drains.look()
        if not self._coordinator.has_all and time.monotonic() > self._deadline:
            host, port = self._coordinator.address
            raise WorkersFailedError(
                f"{self._needs[0] - len(self._coordinator.nodes)} of {self._needs[0]} workers have not connected to the driver at "
                f"{host}:{port} within {self._patience:g} s: no node has room for them, or a firewall or network policy is in the way"
            )


def needs_of(settings: TrainingSettings) -> tuple[int, int, bool, dict[str, Any], AllocatorSettings]:
    """What a group is started with; one of another run can be used if it is the same."""
    scale = settings.scale
    return scale.workers, scale.cpus_per_worker, scale.gpu, dict(scale.environment), settings.compute.allocator
