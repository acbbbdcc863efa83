"""The Ray node of a local run: its scheduler and object store (raylet) and its metadata service (GCS), and nothing else.

`ray.init` also starts a dashboard, an autoscaler, a log monitor and two agents of the raylet. Each of these five processes imports Ray,
the first ones one after the other; the raylet waits for its agents before it registers; and Ray gives up when it has not registered
after 30 s, which a slow machine exceeds. A local run uses none of them: its ranks write their own logs, serve their own metrics and need
no runtime environment, and it adds no nodes.

Here every wait of a start lasts up to `scale.start_timeout`, also those of Ray's processes for each other (`ray_cluster`), and none of
them keeps the display or Ctrl-C waiting.

This module, `ray_drain`, `ray_state`, `ray_trainer` and `training.vms.ray_check` are the only ones that use Ray's internals.
tests/training/launch/test_ray_contract.py checks what they rely on.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import NodeID
from ray._private import node as node_module
from ray._private import ray_constants, services, worker
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._raylet import (  # type: ignore[attr-defined] # a compiled module
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    RUNTIME_ENV_AGENT_PORT_NAME,
    get_port_filename,
    persist_port,
    wait_for_persisted_port,
)
from ray.exceptions import RpcError
from ray.experimental import internal_kv

from training.errors import PlatformError, TrainingFailedError

_AGENT_PORTS = (
    DASHBOARD_AGENT_LISTEN_PORT_NAME,
    METRICS_AGENT_PORT_NAME,
    METRICS_EXPORT_PORT_NAME,
    RUNTIME_ENV_AGENT_PORT_NAME,
)
_RAYLET_ENVIRONMENT = {"RAY_enable_pipe_based_agent_to_parent_health_check": "1"}  # see `_without_agents`
_NO_PORT = -1  # what Ray's own agents publish for a service that they do not provide
_OBJECT_STORE_BYTES = 100 * 1024 * 1024  # Ray's minimum is 75 MiB; training stores no objects
_WITHOUT_RAY = "--launcher torchrun runs the same training without Ray"
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 1.0
"""Until the metadata service is asked again, after a look at whether the raylet still runs."""

_LOG_CHARACTERS = 2000


class LocalNode(Node):
    """A head node on the loopback interface. Its processes die with this one: the kernel kills raylet and GCS, and the rest follows."""

    def __init__(self, *, cpus: int, gpus: int, folder: Path, start_timeout: float) -> None:
        """Start it and wait until it has registered.

        Args:
            cpus: CPUs that it offers to workers.
            gpus: GPUs that it offers to workers.
            folder: for Ray's session files and sockets.
            start_timeout: seconds until a start has failed.

        Raises:
            TrainingFailedError: a process of Ray's exited, or did not answer in time. Nothing is left running.
        """
        self._start_timeout = start_timeout
        self._deadline = time.monotonic() + start_timeout
        parameters = RayParams(
            node_ip_address="127.0.0.1",
            num_cpus=cpus,
            num_gpus=gpus,
            object_store_memory=_OBJECT_STORE_BYTES,
            temp_dir=str(folder),
            worker_path=str(Path(__file__).with_name("ray_worker.py")),
            env_vars=_RAYLET_ENVIRONMENT,
            include_log_monitor=False,
            no_monitor=True,
        )
        try:
            super().__init__(parameters, head=True, shutdown_at_exit=False, ray_init_cluster=True)
        except BaseException as error:
            self.stop()
            if isinstance(error, (PlatformError, KeyboardInterrupt, SystemExit)):
                raise
            raise TrainingFailedError(f"Ray did not start: {error}", remedy=_WITHOUT_RAY) from error
        # Otherwise `ray.init` replaces the loopback address by one of another interface, on which the node does not listen.
        worker._global_node = self  # noqa: SLF001 - cleared by `ray.shutdown`

    def stop(self) -> None:
        """Stop its processes and wait until they have exited."""
        self.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
        # The next library of Ray's that this process imports would report to the metadata service, and Ray's client ends a process
        # whose service does not answer for a minute.
        internal_kv._internal_kv_reset()  # noqa: SLF001 - `ray.shutdown` does it only after `ray.init`

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        """Start no dashboard; Ray would start a reduced one even without `include_dashboard`."""

    def start_gcs_server(self) -> None:
        """Start the metadata service and wait for it, in Python.

        Ray waits for its port in C++, and holds the interpreter's lock: the display would stand still, and Ctrl-C would do nothing.
        """
        with _replaced(node_module, "wait_for_persisted_port", self._await_port):
            super().start_gcs_server()

    def _await_port(self, session: str, node: str, name: str, *, timeout_ms: int) -> int:
        process = self.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER][0].process
        file = Path(session) / get_port_filename(node, name)
        self._await(file.exists, process, "metadata service", "gcs_server")
        return int(wait_for_persisted_port(session, node, name, timeout_ms=timeout_ms))

    def start_raylet(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - passed through
        """Start the raylet with `cat` instead of its agents, which exits when the raylet does."""
        for name in _AGENT_PORTS:
            persist_port(self._session_dir, self._node_id, name, _NO_PORT)
        with _without_agents():
            super().start_raylet(*arguments, **options)

    def start_ray_processes(self) -> None:
        """Start the raylet and wait for it; Ray's own wait, which follows, then finds it registered."""
        super().start_ray_processes()
        raylet = self.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process
        self._await(self._is_registered, raylet, "raylet", "raylet")

    def _is_registered(self) -> bool:
        try:
            known = self.get_gcs_client().get_all_node_info(timeout=_ANSWER_SECONDS)
        except RpcError:  # the metadata service is slow, too
            return False
        return NodeID.from_hex(self._node_id) in known

    def _await(self, is_there: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: str) -> None:
        """Wait for what a process of Ray's does when it has started.

        Raises:
            TrainingFailedError: it exited, or did not do it in time.
        """
        while not is_there():
            status = process.poll()
            if status is not None:
                raise TrainingFailedError(
                    f"Ray did not start: its {name} exited with status {status}\n{self._log_of(log)}".rstrip(),
                    remedy=f"the logs are in {self._logs_dir}; {_WITHOUT_RAY}",
                )
            if time.monotonic() > self._deadline:
                raise TrainingFailedError(
                    f"Ray did not start within {self._start_timeout:g} s (scale.start_timeout)",
                    remedy=f"raise scale.start_timeout on a slow machine; the logs are in {self._logs_dir}",
                )
            time.sleep(_POLL_SECONDS)

    def _log_of(self, name: str) -> str:
        logs = sorted(Path(self._logs_dir).glob(f"{name}*.*"))
        return "\n".join(log.read_text(errors="replace")[-_LOG_CHARACTERS:].strip() for log in logs)


@contextmanager
def _without_agents() -> Iterator[None]:
    """Replace the agents in the raylet's command line, which Ray assembles and runs in one function.

    The raylet requires both, and exits with either. With its pipe-based health check, their standard input is a pipe from the raylet, so
    `cat` exits with it, and costs no import. Ray's agents outlive a killed raylet by up to a minute, in which they try to report its death.
    """
    start = services.start_ray_process
    idle = shutil.which("cat")

    def start_without_agents(command: list[str], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed through
        flags = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
        replaced = [next((f"{flag}{idle}" for flag in flags if part.startswith(flag)), part) for part in command]
        return start(replaced, *arguments, **options)

    with _replaced(services, "start_ray_process", start_without_agents):
        yield


@contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Within the block, a module of Ray's has another value for a name that it uses in the middle of a function."""
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)
