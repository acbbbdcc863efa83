"""A `DataParallelTrainer` that needs no helper actors where the driver does their work.

`TorchTrainer` imports torch in the driver and in Ray's controller, which do not need it, and starts several helper actors one after the
other. On two cores, each import of Ray Train or torch delays the first step by seconds. Ours has no backend: the driver tells the ranks
where to meet (`training.launch.agent`). The controller runs in the driver's process instead of an actor, without the actors for Ray
Data, preemption and orphaned placement groups: those of a driver end with it. It replaces no worker; `training.launch.ray_pool` does.

This is the only module that uses Ray Train's internals. tests/training/launch/test_ray_contract.py checks what it relies on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.backend import BackendConfig
from ray.train.v2._internal.callbacks import AcceleratorSetupCallback, BackendSetupCallback
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback import RayTrainCallback
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup, state, worker_group
from ray.train.v2._internal.execution.worker_group.worker_group import Worker
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from training.config.schema import ScaleSettings
from training.launch.loop_gate import LoopGate


class _OwnScalingPolicy(FixedScalingPolicy):
    """Asks for no nodes: Ray's policy starts an actor that does, which imports Ray Data, and times out on a slow machine."""

    def after_controller_start(self, train_run_context: TrainRunContext) -> None:
        """Nothing to request."""

    def _maybe_send_resource_request(self) -> None:
        """Nothing to request."""


class _NoSynchronization:
    """Stands in for the actor behind `ray.train.report` and Ray's collectives, which ranks do not use.

    The raylet would start its process, which imports Ray Train, before that of the last rank.
    """

    @classmethod
    def options(cls, **options: Any) -> _NoSynchronization:  # noqa: ANN401 - Ray's signature
        del options
        return cls()

    def remote(self, **arguments: Any) -> _NoSynchronization:  # noqa: ANN401 - Ray's signature
        del arguments
        return self


class _WithoutSynchronization:
    """Creates worker groups with `_NoSynchronization` while at least one thread is in the block.

    Ray's worker group names the class in the middle of its start, so it is replaced in the module.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._originals = (worker_group.SynchronizationActor, state._shutdown_sync_actor)  # noqa: SLF001

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, users: int) -> None:
        with self._lock:
            self._users += users
            actor, shutdown = (_NoSynchronization, _do_nothing) if self._users else self._originals
            worker_group.SynchronizationActor, state._shutdown_sync_actor = actor, shutdown  # noqa: SLF001


def _do_nothing(actor: object) -> None:
    """In place of what shuts the actor down."""
    del actor


_without_synchronization = _WithoutSynchronization()


class _OwnWorkerGroup(WorkerGroup):
    """A worker group without a controller actor to pass to its workers."""

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: dict[str, Any]) -> dict[str, Any]:
        """No runtime environment: workers inherit the variables of their node, and a local node has no agent to set others."""
        del custom_runtime_env
        return {}

    def _init_train_context_on_workers(
        self,
        workers: list[Worker],
        sync_actor: Any,  # noqa: ANN401
        train_context_args: dict[str, list[Any]],
    ) -> None:
        del sync_actor
        tasks = [
            worker.actor.init_train_context.remote(
                train_run_context=self._train_run_context,
                distributed_context=worker.distributed_context,
                synchronization_actor=None,
                storage_context=self._storage_context,
                worker_callbacks=self._worker_callbacks_to_propagate,
                controller_actor=None,
                **{name: values[index] for name, values in train_context_args.items()},
            )
            for index, worker in enumerate(workers)
        ]
        ray.get(tasks)
        self._decorate_worker_log_file_paths(workers)


class _OwnController(TrainController):
    """A controller whose loop ends when this process leaves the cluster."""

    worker_group_cls = _OwnWorkerGroup

    def __init__(self, *, gate: LoopGate, **arguments: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(**arguments)
        self._gate = gate

    async def _run_control_loop_iteration(self) -> None:
        with self._gate.passing():
            await super()._run_control_loop_iteration()


class _OwnTrainer(DataParallelTrainer):
    """A trainer whose controller runs in this process, with the callbacks that workers need."""

    def __init__(self, *arguments: Any, gate: LoopGate, **options: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(*arguments, **options)
        self._gate = gate

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        return [
            AcceleratorSetupCallback(self.backend_config, self.scaling_config),
            BackendSetupCallback(self.backend_config),
        ]

    def _initialize_and_run_controller(self, **arguments: Any) -> Result:  # noqa: ANN401 - passed through
        arguments["scaling_policy"] = _OwnScalingPolicy(self.scaling_config)
        controller = _OwnController(gate=self._gate, **arguments)
        with _without_synchronization():
            asyncio.run(controller.run())
        return controller.get_result()


def make_trainer(
    serve: Callable[[dict[str, Any]], None],
    config: dict[str, Any],
    *,
    scale: ScaleSettings,
    workers: int,
    folder: Path,
    gate: LoopGate,
) -> DataParallelTrainer:
    """The trainer of a worker group, which ends with the first worker that is lost.

    Args:
        serve: runs on every worker.
        config: its argument.
        scale: what each of the workers takes.
        workers: number of the workers, all of which start or none.
        folder: for Ray Train's own files, which all nodes share.
        gate: ends the trainer's loop once it is closed.
    """
    return _OwnTrainer(
        serve,
        gate=gate,
        train_loop_config=config,
        backend_config=BackendConfig(),
        scaling_config=ScalingConfig(
            num_workers=workers, use_gpu=scale.gpu, resources_per_worker=needs_of_worker(scale)
        ),
        run_config=RunConfig(
            name=config["group"],
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
        ),
    )


def needs_of_worker(scale: ScaleSettings) -> dict[str, float]:
    """Ray's resources of one worker."""
    return {"CPU": float(scale.cpus_per_worker), **({"GPU": 1.0} if scale.gpu else {})}


def dead_ranks(error: TrainingFailedError) -> list[int]:
    """The ranks that failed Ray's health check, in order; not those that raised."""
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    return sorted(rank for rank, failure in failures.items() if isinstance(failure, WorkerHealthCheckFailedError))
