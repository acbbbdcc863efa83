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
from ray._private import state as ray_state
from ray._private import worker
from ray.train import ScalingConfig, WorkerGroupError
from ray.train.v2._internal import constants
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.scaling_policy import ScalingPolicy
from ray.train.v2._internal.execution.worker_group import state, worker_group
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.training.runs import small_settings
from training.launch import ray_cluster, ray_facts, ray_messages, ray_node, ray_trainer
from training.launch.loop_gate import LoopGate

PACKAGE = Path(ray.__file__).parent


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_of_ray_is_the_one_these_tests_were_written_for() -> None:
    assert ray.__version__ == "2.60.0"


def test_a_worker_group_gets_no_synchronization_actor_while_ours_starts() -> None:
    before = worker_group.SynchronizationActor, state._shutdown_sync_actor
    with ray_trainer._without_synchronization(), ray_trainer._without_synchronization():
        actor = worker_group.SynchronizationActor.options(label_selector={}).remote(timeout_s=1, warn_interval_s=1)
        assert isinstance(actor, ray_trainer._NoSynchronization)
        state._shutdown_sync_actor(actor)
    assert (worker_group.SynchronizationActor, state._shutdown_sync_actor) == before


def test_our_scaling_policy_sends_no_requests() -> None:
    overridden = {"after_controller_start", "_maybe_send_resource_request"}
    assert overridden <= vars(ScalingPolicy).keys() & vars(ray_trainer._OwnScalingPolicy).keys()
    policy = ray_trainer._OwnScalingPolicy(ScalingConfig(num_workers=2))
    policy.after_controller_start(None)
    assert policy.make_decision_for_non_running_worker_group().num_workers == 2
    policy._cancel_resource_request()


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
    ports = {name for name in vars(_raylet) if name.endswith("_PORT_NAME")} - {"GCS_SERVER_PORT_NAME"}
    assert {getattr(_raylet, name) for name in ports} == set(ray_node._AGENT_PORTS)


def test_ray_says_that_a_worker_died_that_an_actor_died_with_its_node_and_which_nodes_drain() -> None:
    """`draining_nodes` reads the keys; the values are deadlines."""
    assert "            print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    assert parameters(ray_messages._print) == parameters(ray_messages._print_others)
    assert ray_messages._WORKER_DIED.encode() in (PACKAGE / "core/src/ray/raylet/raylet").read_bytes()
    metadata_service = (PACKAGE / "core/src/ray/gcs/gcs_server").read_bytes()
    assert all(part.encode() in metadata_service for part in ray_facts._LOST_WITH_NODE)
    assert parameters(ray_state.state.get_draining_nodes) == []
    assert get_args(inspect.signature(ray_state.state.get_draining_nodes).return_annotation) == (str, int)
