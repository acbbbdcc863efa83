"""The private API of Ray that `training.launch` relies on: an upgrade that changes it fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import ray
from ray import _raylet
from ray._private import ray_constants, services, worker
from ray._private import state as ray_state
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.train import ScalingConfig, WorkerGroupError
from ray.train.v2._internal import constants
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import ScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup, state, worker_group
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.training.runs import small_settings
from training.launch import ray_cluster, ray_facts, ray_messages, ray_node, ray_trainer
from training.launch.loop_gate import LoopGate
from training.launch.ray_node import LocalNode


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def source_of(member: object) -> str:
    """The source of a method or a property; empty for other members of a class."""
    function = member.fget if isinstance(member, property) else member
    return inspect.getsource(function) if inspect.isfunction(function) else ""


def test_the_version_of_ray_is_the_one_these_tests_were_written_for() -> None:
    assert ray.__version__ == "2.60.0"


def test_the_controller_creates_its_worker_group_from_a_class_attribute() -> None:
    assert TrainController.worker_group_cls is WorkerGroup
    assert "self.worker_group_cls" in inspect.getsource(TrainController)


def test_our_worker_group_differs_from_rays_only_in_the_controller_actor() -> None:
    name = "_init_train_context_on_workers"
    ours = getattr(ray_trainer._OwnWorkerGroup, name)
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


def test_workers_have_no_runtime_environment_for_which_the_node_has_no_agent() -> None:
    name = "_get_worker_runtime_env"
    assert parameters(getattr(ray_trainer._OwnWorkerGroup, name)) == parameters(getattr(WorkerGroup, name))
    assert f"self.{name}(" in inspect.getsource(WorkerGroup._create_workers)


def test_a_worker_group_passes_the_synchronization_actor_only_to_what_we_replace() -> None:
    source = inspect.getsource(WorkerGroup._start_impl)
    assert source.count("SynchronizationActor") == source.count("SynchronizationActor.options(") == 1
    assert "self._init_train_context(workers, sync_actor)" in source
    assert "_shutdown_sync_actor(self.sync_actor)" in inspect.getsource(state.WorkerGroupState.shutdown)
    before = worker_group.SynchronizationActor, state._shutdown_sync_actor
    with ray_trainer._without_synchronization(), ray_trainer._without_synchronization():
        actor = worker_group.SynchronizationActor.options(label_selector={}).remote(timeout_s=1, warn_interval_s=1)
        assert isinstance(actor, ray_trainer._NoSynchronization)
        state._shutdown_sync_actor(actor)
    assert (worker_group.SynchronizationActor, state._shutdown_sync_actor) == before


def test_only_the_methods_that_our_scaling_policy_overrides_send_requests() -> None:
    coordinator = "_coordinator_client"
    users = {name for name, method in vars(ScalingPolicy).items() if coordinator in source_of(method)}
    overridden = {"after_controller_start", "_maybe_send_resource_request"}
    # The second is called by the first; the third does nothing without the first; the last is for elastic policies.
    others = {"_send_resource_request", "_cancel_resource_request", "_autoscaling_coordinator"}
    assert users == {"__init__", *overridden, *others}
    assert overridden <= vars(ray_trainer._OwnScalingPolicy).keys()
    policy = ray_trainer._OwnScalingPolicy(ScalingConfig(num_workers=2))
    policy.after_controller_start(None)
    assert policy.make_decision_for_non_running_worker_group().num_workers == 2
    policy._cancel_resource_request()


def test_the_constructor_of_a_node_calls_the_methods_that_our_node_overrides() -> None:
    for name in ("start_raylet", "start_api_server", "start_ray_processes", "start_gcs_server"):
        assert inspect.getsource(Node).count(f"self.{name}(") == 1
    assert parameters(LocalNode.start_api_server) == parameters(Node.start_api_server)
    assert {"node_ip_address", "worker_path", "env_vars", "no_monitor"} <= set(parameters(RayParams.__init__))


def test_ray_waits_for_the_metadata_service_s_port_with_the_function_that_we_replace() -> None:
    source = inspect.getsource(Node.start_gcs_server)
    assert source.count("= wait_for_persisted_port(") == 1
    assert source.index("self.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER] =") < source.index("wait_for_pers")


def test_the_command_of_the_raylet_has_the_agents_that_our_node_replaces() -> None:
    source = inspect.getsource(services.start_raylet)
    assert source.count("start_ray_process(") == 1
    for flag in ("--dashboard_agent_command=", "--runtime_env_agent_command="):
        assert source.count(f'"{flag}{{}}"') == 1


def test_ray_waits_for_no_port_that_our_node_does_not_publish() -> None:
    names = {name for name in vars(_raylet) if name.endswith("_PORT_NAME")} - {"GCS_SERVER_PORT_NAME"}
    assert {getattr(_raylet, name) for name in names} == set(ray_node._AGENT_PORTS)


def test_rays_worker_is_the_script_that_our_entry_point_runs() -> None:
    assert (Path(ray.__file__).parent / "_private" / "workers" / "default_worker.py").is_file()
    assert '"default_worker.py"' in inspect.getsource(Node.__init__)


def test_fit_calls_the_methods_that_our_trainer_overrides() -> None:
    source = inspect.getsource(DataParallelTrainer.fit)
    assert "callbacks=self._create_default_callbacks()" in source
    assert "self._initialize_and_run_controller(" in source
    assert inspect.iscoroutinefunction(TrainController.run)
    assert not inspect.iscoroutinefunction(TrainController.get_result)


def test_the_loop_of_a_controller_calls_the_method_that_ours_overrides() -> None:
    assert "await self._run_control_loop_iteration()" in inspect.getsource(TrainController.run)
    assert inspect.iscoroutinefunction(TrainController._run_control_loop_iteration)
    assert parameters(TrainController._run_control_loop_iteration) == ["self"]


def test_a_controller_in_the_driver_has_only_the_callbacks_that_workers_need(tmp_path: Path) -> None:
    scale = small_settings(scale={"launcher": "ray"}).scale
    assert constants.V2_ENABLED_ENV_VAR in ray_cluster._ENVIRONMENT
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(constants.V2_ENABLED_ENV_VAR, "1")
        trainer = ray_trainer.make_trainer(
            print, {"group": "group-1"}, scale=scale, workers=2, folder=tmp_path, gate=LoopGate()
        )
        theirs = [type(callback).__name__ for callback in DataParallelTrainer._create_default_callbacks(trainer)]
    ours = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert ours == ["AcceleratorSetupCallback", "BackendSetupCallback"]
    assert theirs[:4] == [*ours, "PlacementGroupCleanerCallback", "DatasetsCallback"]


def test_dead_ranks_are_those_that_failed_the_health_check() -> None:
    death = WorkerHealthCheckFailedError("died", failure=RuntimeError("actor died"))
    error = WorkerGroupError("two failed", {1: death, 0: RuntimeError("raised")})
    assert ray_trainer.dead_ranks(error) == [1]


@pytest.mark.parametrize(
    "variable",
    [name for name in (*ray_cluster._ENVIRONMENT, *ray_cluster._LOCAL_ENVIRONMENT) if name.startswith("RAY_TRAIN_")]
    + ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "RAY_CHDIR_TO_TRIAL_DIR"],
)
def test_ray_train_reads_the_variables_that_we_set(variable: str) -> None:
    source = "".join(
        inspect.getsource(import_module(module))
        for module in ("ray.train.v2._internal.constants", "ray.train.constants", "ray.train.v2._internal.util")
    )
    assert f'"{variable}"' in source


@pytest.mark.parametrize(
    "variable",
    [
        "RAY_USAGE_STATS_ENABLED",
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_gcs_server_port_wait_time_s",
        "RAY_ENABLE_AUTO_CONNECT",
    ],
)
def test_ray_core_reads_the_variables_that_we_set(variable: str) -> None:
    package = Path(ray.__file__).parent
    modules = [*package.glob("_private/**/*.py"), *package.glob("_common/**/*.py")]
    assert any(f'"{variable}"' in path.read_text(encoding="utf-8") for path in modules)


def test_the_raylet_knows_the_settings_that_we_set() -> None:
    """Ray compiles these settings in and ignores unknown ones."""
    raylet = (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    of_core = [name for name in ray_cluster._LOCAL_TIMEOUTS if name != "RAY_gcs_server_port_wait_time_s"]
    ours = [*ray_cluster._LOCAL_ENVIRONMENT, *ray_node._RAYLET_ENVIRONMENT, *of_core]
    names = [name.removeprefix("RAY_") for name in ours]
    compiled = [name for name in names if name.islower()]
    assert len(compiled) == 6
    assert all(name.encode() in raylet for name in compiled)


def test_ray_prints_the_death_of_a_worker_with_a_function_that_we_replace() -> None:
    assert "            print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    assert parameters(ray_messages._print) == parameters(ray_messages._print_others)
    raylet = (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    assert ray_messages._WORKER_DIED.encode() in raylet


def test_the_environment_of_a_worker_names_its_raylet() -> None:
    raylet = (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    assert b"RAY_RAYLET_PID" in raylet


def test_our_object_store_is_not_below_rays_minimum() -> None:
    assert ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES <= ray_node._OBJECT_STORE_BYTES


def test_ray_knows_which_nodes_drain() -> None:
    """`draining_nodes` reads the keys; the values are deadlines."""
    assert parameters(ray_state.state.get_draining_nodes) == []
    assert get_args(inspect.signature(ray_state.state.get_draining_nodes).return_annotation) == (str, int)


def test_ray_says_of_an_actor_that_it_died_with_its_node() -> None:
    metadata_service = (Path(ray.__file__).parent / "core/src/ray/gcs/gcs_server").read_bytes()
    assert all(part.encode() in metadata_service for part in ray_facts._LOST_WITH_NODE)
