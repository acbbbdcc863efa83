"""The private API of Ray that `ray_trainer` and `ray_train` rely on: an upgrade that changes it fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import ray_constants
from ray.train import WorkerGroupError
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal import constants
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.training.runs import small_settings
from training.launch import ray_train, ray_trainer
from training.launch.task import RankTask


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_of_ray_is_the_one_these_tests_were_written_for() -> None:
    assert ray.__version__ == "2.60.0"


def test_the_controller_creates_its_worker_group_from_a_class_attribute() -> None:
    assert TrainController.worker_group_cls is WorkerGroup
    assert "self.worker_group_cls" in inspect.getsource(TrainController)


def test_our_worker_group_differs_from_rays_only_in_the_controller_actor() -> None:
    name = "_init_train_context_on_workers"
    ours = getattr(ray_trainer._LocalWorkerGroup, name)
    assert parameters(ours) == parameters(getattr(WorkerGroup, name))
    source = inspect.getsource(getattr(WorkerGroup, name))
    assert "controller_actor=" in source
    for line in ("self._train_run_context", "self._storage_context", "self._worker_callbacks_to_propagate"):
        assert line in source
    assert "self._decorate_worker_log_file_paths(workers)" in source


def test_workers_accept_the_context_of_our_worker_group() -> None:
    assert parameters(RayTrainWorker.init_train_context)[:7] == [
        "self",
        "train_run_context",
        "distributed_context",
        "synchronization_actor",
        "storage_context",
        "worker_callbacks",
        "controller_actor",
    ]


def test_fit_calls_the_methods_that_our_trainer_overrides() -> None:
    source = inspect.getsource(DataParallelTrainer.fit)
    assert "callbacks=self._create_default_callbacks()" in source
    assert "self._initialize_and_run_controller(" in source
    assert inspect.iscoroutinefunction(TrainController.run)
    assert not inspect.iscoroutinefunction(TrainController.get_result)


def test_a_local_cluster_has_only_the_callbacks_that_workers_need(tmp_path: Path) -> None:
    task = RankTask(settings=small_settings(scale={"launcher": "ray"}), run_directory=tmp_path, attempt=0)
    assert constants.V2_ENABLED_ENV_VAR in ray_train._ENVIRONMENT
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(constants.V2_ENABLED_ENV_VAR, "1")
        local = ray_trainer.make_trainer(task, is_local=True)
        remote = ray_trainer.make_trainer(task, is_local=False)
    ours = [type(callback).__name__ for callback in local._create_default_callbacks()]
    theirs = [type(callback).__name__ for callback in remote._create_default_callbacks()]
    assert ours == ["AcceleratorSetupCallback", "BackendSetupCallback"]
    assert theirs[:4] == [*ours, "PlacementGroupCleanerCallback", "DatasetsCallback"]


def test_a_backend_starts_with_the_worker_group_and_its_config() -> None:
    assert parameters(Backend.on_start) == ["self", "worker_group", "backend_config"]
    assert isinstance(BackendConfig.backend_cls, property)
    assert parameters(WorkerGroup.execute_single)[:3] == ["self", "rank", "fn"]
    assert parameters(WorkerGroup.execute)[:2] == ["self", "fn"]


def test_dead_ranks_are_those_that_failed_the_health_check() -> None:
    death = WorkerHealthCheckFailedError("died", failure=RuntimeError("actor died"))
    error = WorkerGroupError("two failed", {1: death, 0: RuntimeError("raised")})
    assert ray_trainer.dead_ranks(error) == [1]


@pytest.mark.parametrize(
    "variable",
    [name for name in (*ray_train._ENVIRONMENT, *ray_train._LOCAL_ENVIRONMENT) if name.startswith("RAY_TRAIN_")]
    + ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "RAY_CHDIR_TO_TRIAL_DIR"],
)
def test_ray_train_reads_the_variables_that_we_set(variable: str) -> None:
    source = "".join(
        inspect.getsource(import_module(module))
        for module in ("ray.train.v2._internal.constants", "ray.train.constants", "ray.train.v2._internal.util")
    )
    assert f'"{variable}"' in source


@pytest.mark.parametrize("variable", ["RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"])
def test_ray_core_reads_the_variables_that_we_set(variable: str) -> None:
    package = Path(ray.__file__).parent
    modules = [*package.glob("_private/**/*.py"), *package.glob("_common/**/*.py")]
    assert any(f'"{variable}"' in path.read_text(encoding="utf-8") for path in modules)


def test_the_raylet_knows_the_settings_that_disable_worker_prestart() -> None:
    """Ray compiles these settings in and ignores unknown ones."""
    raylet = (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    for name in ray_train._LOCAL_ENVIRONMENT:
        if name.startswith(("RAY_enable_", "RAY_prestart_")):
            assert name.removeprefix("RAY_").encode() in raylet


def test_our_object_store_is_not_below_rays_minimum() -> None:
    assert ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES <= ray_train._OBJECT_STORE_BYTES
