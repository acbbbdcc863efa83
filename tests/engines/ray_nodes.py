"""A Ray cluster on several hosts, started as KubeRay starts its pods: a head without CPUs, and workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.engines.hosts import Host
from tests.engines.report_table import ran

PORT = 6379
_OBJECT_STORE_BYTES = 100 * 2**20
_START_SECONDS = 120.0
_STARTS = 3
_NODE_AT = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(next(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == sys.argv[2]))
"""


class RayNodes:
    """The nodes of the cluster."""

    def __init__(self, head: Host, folder: Path) -> None:
        """Start the head; the path `folder` has to be short, because it holds Ray's sockets."""
        self.head = head
        self.address = f"{head.address}:{PORT}"
        self.environment: Mapping[str, str] = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "a" * 64,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": f"{_START_SECONDS:.0f}",  # 30 by default, which a busy machine exceeds
            "HOME": str(folder),
        }
        self._folder = folder
        self._processes: dict[Host, subprocess.Popen[bytes]] = {}
        self._start(head, "--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")

    def join(self, host: Host, *, cpus: int = 1) -> None:
        """Start a worker node and wait until it joins the cluster."""
        self._start(host, f"--address={self.address}", f"--num-cpus={cpus}")

    def lose(self, host: Host) -> None:
        """Kill every process of a node, as a power failure does."""
        with suppress(ProcessLookupError):  # it could not start
            os.killpg(self._processes.pop(host).pid, signal.SIGKILL)

    @property
    def workers(self) -> list[Host]:
        """The hosts besides the head."""
        return [host for host in self._processes if host is not self.head]

    def drain(self, host: Host, *, seconds: int) -> float:
        """Announce that a node goes in some seconds, as the preStop hook of a pod does; returns the Unix time of it."""
        node = self._on_head(sys.executable, "-c", _NODE_AT, self.address, host.address).strip()
        began = time.time()
        self._on_head(
            str(Path(sys.executable).with_name("ray")),
            "drain-node",
            f"--address={self.address}",
            f"--node-id={node}",
            "--reason=DRAIN_NODE_REASON_PREEMPTION",
            "--reason-message=the pod was asked to end",
            f"--deadline-remaining-seconds={seconds}",
        )
        return began

    def _on_head(self, *command: str) -> str:
        """Run a command on the head; returns its standard output."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [*self.head.prefix, *command], env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def stop(self) -> None:
        """Kill every node."""
        for host in list(self._processes):
            self.lose(host)

    def _start(self, host: Host, *arguments: str) -> None:
        """Start a node, and restart it if it exits, as a kubelet does with a container."""
        for _ in range(_STARTS - 1):
            if self._is_started(host, *arguments):
                return
            self.lose(host)
        assert self._is_started(host, *arguments), self._log(host).read_text()[-2000:]

    def _is_started(self, host: Host, *arguments: str) -> bool:
        """Whether a node starts in time."""
        command = [*host.prefix, str(Path(sys.executable).with_name("ray")), "start", "--block"]
        command += [f"--node-ip-address={host.address}", f"--object-store-memory={_OBJECT_STORE_BYTES}", *arguments]
        if "--head" in arguments:
            command.append(f"--temp-dir={self._folder}")
        log = self._log(host)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[host] = process
        deadline = time.monotonic() + _START_SECONDS
        while b"Ray runtime started" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _log(self, host: Host) -> Path:
        return self._folder / f"{host.namespace}.log"


@contextmanager
def ray_nodes(members: Sequence[Host], folder: Path) -> Iterator[RayNodes]:
    """A cluster with its head on the first host and a worker with one CPU on each of the others."""
    head, *workers = members
    nodes = RayNodes(head, folder)
    try:
        for host in workers:
            nodes.join(host)
        ran("Ray cluster")
        yield nodes
    finally:
        nodes.stop()
