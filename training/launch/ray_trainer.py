"""The Ray Train trainer: `DataParallelTrainer` without what a run of ours does not use.

`TorchTrainer` imports torch in the driver and in Ray's controller, which need none of it, and starts a chain of helper actors one after
the other; on two cores each import of Ray Train or torch delays the first step by seconds. So: our own backend, which only tells the
workers where to meet, and, on this machine, the controller in the driver's process instead of an actor, without the actors that serve
Ray Data, preemption and orphaned placement groups. On a cluster Ray's own controller and callbacks are kept: they matter there.

This is the only module that touches Ray Train's internals. tests/training/launch/test_ray_contract.py pins what it relies on.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import ray
from ray.train import FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.callbacks import AcceleratorSetupCallback, BackendSetupCallback
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback import RayTrainCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.worker_group import Worker
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from training.launch.ray_rank import free_address, set_meeting_point, train_rank
from training.launch.task import RankTask


class _MeetingBackend(Backend):
    """Tells every worker the address at which rank 0 will open the process group."""

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:  # noqa: ANN401 - Ray's own signature
        assert isinstance(backend_config, _MeetingConfig)
        address, port = worker_group.execute_single(0, free_address, loopback=backend_config.is_loopback)
        worker_group.execute(set_meeting_point, address, port)


@dataclass
class _MeetingConfig(BackendConfig):
    """Settings of `_MeetingBackend`: whether all workers are on this machine."""

    is_loopback: bool

    @property
    def backend_cls(self) -> type[Backend]:
        return _MeetingBackend


class _LocalWorkerGroup(WorkerGroup):
    """A worker group whose controller is no actor, so that it has no handle to pass on."""

    def _init_train_context_on_workers(
        self,
        workers: list[Worker],
        sync_actor: Any,  # noqa: ANN401
        train_context_args: dict[str, list[Any]],
    ) -> None:
        tasks = [
            worker.actor.init_train_context.remote(
                train_run_context=self._train_run_context,
                distributed_context=worker.distributed_context,
                synchronization_actor=sync_actor,
                storage_context=self._storage_context,
                worker_callbacks=self._worker_callbacks_to_propagate,
                controller_actor=None,
                **{name: values[index] for name, values in train_context_args.items()},
            )
            for index, worker in enumerate(workers)
        ]
        ray.get(tasks)
        self._decorate_worker_log_file_paths(workers)


class _LocalController(TrainController):
    worker_group_cls = _LocalWorkerGroup


class _LocalTrainer(DataParallelTrainer):
    """The trainer for a cluster that is this machine: controller in this process, only the callbacks that workers need."""

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        return [
            AcceleratorSetupCallback(self.backend_config, self.scaling_config),
            BackendSetupCallback(self.backend_config),
        ]

    def _initialize_and_run_controller(self, **arguments: Any) -> Result:  # noqa: ANN401 - passed through
        controller = _LocalController(**arguments)
        asyncio.run(controller.run())
        return controller.get_result()


def make_trainer(task: RankTask, *, runs_on_this_machine: bool) -> DataParallelTrainer:
    """The trainer of one attempt. Retries are the supervisor's: Ray is told to give up at the first failure."""
    scale = task.settings.scale
    trainer = _LocalTrainer if runs_on_this_machine else DataParallelTrainer
    return trainer(
        train_rank,
        train_loop_config=task.dump(),
        backend_config=_MeetingConfig(is_loopback=runs_on_this_machine),
        scaling_config=ScalingConfig(
            num_workers=scale.workers,
            use_gpu=scale.gpu,
            resources_per_worker={"CPU": scale.cpus_per_worker, **({"GPU": 1} if scale.gpu else {})},
        ),
        run_config=RunConfig(
            name=f"attempt-{task.attempt}-{uuid.uuid4().hex[:8]}",
            storage_path=str(task.run_directory / "ray"),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
        ),
    )


def dead_ranks(error: TrainingFailedError) -> list[int]:
    """The ranks whose process had died when Ray looked after it, and not raised; in order."""
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    return sorted(rank for rank, failure in failures.items() if isinstance(failure, WorkerHealthCheckFailedError))
