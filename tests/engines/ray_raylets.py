"""A Ray cluster of several nodes on this machine: raylets without agents, as in a local run. Five nodes start in a second or two.

`tests.engines.ray_nodes` starts nodes as KubeRay does, each on a host of its own, for what depends on addresses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray
from ray._private import ray_constants, services
from ray._private.node import Node
from ray._private.parameter import RayParams

from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran
from training.launch import ray_node
from training.launch.ray_node import LocalNode

_START_SECONDS = 120.0
_OBJECT_STORE_BYTES = 100 * 2**20


class Raylet(LocalNode):
    """A node on this machine's address: a head without CPUs, or a worker with one. Its processes die with this one."""

    def __init__(self, folder: Path, *, cluster: str | None) -> None:
        """Start it and wait until it has registered.

        Args:
            folder: for Ray's session files and sockets; its path has to be short.
            cluster: address of the head that a worker joins; None starts a head.
        """
        self._start_timeout = _START_SECONDS
        self._deadline = time.monotonic() + _START_SECONDS
        joined = {} if cluster is None else {"gcs_address": cluster, "redis_address": cluster}
        parameters = RayParams(
            **joined,
            # Drivers replace loopback by this address.
            node_ip_address=services.get_node_ip_address(),
            num_cpus=0 if cluster is None else 1,
            num_gpus=0,
            object_store_memory=_OBJECT_STORE_BYTES,
            temp_dir=str(folder),
            worker_path=str(Path(ray_node.__file__).with_name("ray_worker.py")),
            env_vars={"RAY_enable_pipe_based_agent_to_parent_health_check": "1"},
            include_log_monitor=False,
            no_monitor=True,
        )
        is_head = cluster is None
        Node.__init__(self, parameters, head=is_head, shutdown_at_exit=False, ray_init_cluster=is_head)

    @property
    def raylet_pid(self) -> int:
        """Process id of its raylet, which its workers have as RAY_RAYLET_PID."""
        return int(self.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid)

    @property
    def id(self) -> str:
        """Its id in Ray."""
        return str(self._node_id)

    def lose(self) -> None:
        """Kill it without notice."""
        self.kill_raylet(check_alive=False)


@contextmanager
def raylets(count: int, folder: Path) -> Iterator[tuple[str, list[Raylet]]]:
    """Address and workers of a cluster with that many workers, whose environment variables are this process's."""
    head = Raylet(folder, cluster=None)
    workers: list[Raylet] = []
    try:
        for _ in range(count):
            workers.append(Raylet(folder, cluster=str(head.address)))  # noqa: PERF401 - the started ones are stopped
        ran("Ray cluster")
        yield str(head.address), workers
    finally:
        for node in (*workers, head):
            with suppress(ProcessLookupError):
                node.stop()


@contextmanager
def raylets_of_this_driver(count: int) -> Iterator[list[Raylet]]:
    """Workers of a cluster that this process is connected to."""
    with short_folder() as folder, raylets(count, folder) as (address, workers):
        ray.init(address, log_to_driver=False, logging_level="ERROR")
        try:
            yield workers
        finally:
            ray.shutdown()
