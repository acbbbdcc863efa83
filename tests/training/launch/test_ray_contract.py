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

PACKAGE = Path(ray.__file__).parent


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def source_of(member: object) -> str:
    """The source of a method or a property; empty for other members of a class."""
    function = member.fget if isinstance(member, property) else member
    return inspect.getsource(function) if inspect.isfunction(function) else ""


def test_our_worker_group_differs_from_rays_only_in_the_controller_actor_and_the_runtime_environment() -> None:
    assert TrainController.worker_group_cls is WorkerGroup
    assert "self.worker_group_cls" in inspect.getsource(TrainController)
    for name in ("_init_train_context_on_workers", "_get_worker_runtime_env"):
        ours, theirs = (parameters(getattr(one, name)) for one in (ray_trainer._OwnWorkerGroup, WorkerGroup))
        assert ours == theirs
    assert "self._get_worker_runtime_env(" in inspect.getsource(WorkerGroup._create_workers)
    source = inspect.getsource(WorkerGroup._init_train_context_on_workers)
    for part in (
        "controller_actor=",
        "self._train_run_context",
        "self._storage_context",
        "self._worker_callbacks_to_propagate",
        "self._decorate_worker_log_file_paths(workers)",
    ):
        assert part in source
    assert parameters(RayTrainWorker.init_train_context)[:7] == [
        "self", "train_run_context", "distributed_context", "synchronization_actor", "storage_context",
        "worker_callbacks", "controller_actor",
    ]  # fmt: skip


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


def test_the_start_of_a_node_has_what_our_node_replaces() -> None:
    source = inspect.getsource(Node.start_gcs_server)
    assert source.count("= wait_for_persisted_port(") == 1
    assert source.index("self.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER] =") < source.index("wait_for_pers")
    source = inspect.getsource(services.start_raylet)
    assert source.count("start_ray_process(") == 1
    for flag in ("--dashboard_agent_command=", "--runtime_env_agent_command="):
        assert source.count(f'"{flag}{{}}"') == 1
    ports = {name for name in vars(_raylet) if name.endswith("_PORT_NAME")} - {"GCS_SERVER_PORT_NAME"}
    assert {getattr(_raylet, name) for name in ports} == set(ray_node._AGENT_PORTS)
    assert (PACKAGE / "_private" / "workers" / "default_worker.py").is_file()
    assert '"default_worker.py"' in inspect.getsource(Node.__init__)
    assert ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES <= ray_node._OBJECT_STORE_BYTES


def test_fit_and_the_controller_s_loop_call_the_methods_that_ours_override() -> None:
    source = inspect.getsource(DataParallelTrainer.fit)
    assert "callbacks=self._create_default_callbacks()" in source
    assert "self._initialize_and_run_controller(" in source
    assert inspect.iscoroutinefunction(TrainController.run)
    assert not inspect.iscoroutinefunction(TrainController.get_result)
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


def test_ray_reads_the_variables_that_we_set() -> None:
    of_train = "".join(
        inspect.getsource(import_module(module))
        for module in ("ray.train.v2._internal.constants", "ray.train.constants", "ray.train.v2._internal.util")
    )
    ours = [*ray_cluster._ENVIRONMENT, *ray_cluster._LOCAL_ENVIRONMENT]
    also = ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "RAY_CHDIR_TO_TRIAL_DIR"]
    for variable in [name for name in ours if name.startswith("RAY_TRAIN_")] + also:
        assert f'"{variable}"' in of_train
    modules = [*PACKAGE.glob("_private/**/*.py"), *PACKAGE.glob("_common/**/*.py")]
    of_core = "".join(path.read_text(encoding="utf-8") for path in modules)
    for variable in (
        "RAY_USAGE_STATS_ENABLED",
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_gcs_server_port_wait_time_s",
        "RAY_ENABLE_AUTO_CONNECT",
    ):
        assert f'"{variable}"' in of_core


def test_the_raylet_knows_the_settings_that_we_set_and_names_itself_to_its_workers() -> None:
    """Ray compiles these settings in and ignores unknown ones."""
    raylet = (PACKAGE / "core/src/ray/raylet/raylet").read_bytes()
    of_core = [name for name in ray_cluster._LOCAL_TIMEOUTS if name != "RAY_gcs_server_port_wait_time_s"]
    ours = [*ray_cluster._LOCAL_ENVIRONMENT, *ray_node._RAYLET_ENVIRONMENT, *of_core]
    compiled = [name for name in (name.removeprefix("RAY_") for name in ours) if name.islower()]
    assert len(compiled) == 6
    assert all(name.encode() in raylet for name in compiled)
    assert b"RAY_RAYLET_PID" in raylet


def test_ray_says_that_a_worker_died_that_an_actor_died_with_its_node_and_which_nodes_drain() -> None:
    """`draining_nodes` reads the keys; the values are deadlines."""
    assert "            print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    assert parameters(ray_messages._print) == parameters(ray_messages._print_others)
    assert ray_messages._WORKER_DIED.encode() in (PACKAGE / "core/src/ray/raylet/raylet").read_bytes()
    metadata_service = (PACKAGE / "core/src/ray/gcs/gcs_server").read_bytes()
    assert all(part.encode() in metadata_service for part in ray_facts._LOST_WITH_NODE)
    assert parameters(ray_state.state.get_draining_nodes) == []
    assert get_args(inspect.signature(ray_state.state.get_draining_nodes).return_annotation) == (str, int)
