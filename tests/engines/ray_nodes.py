"""A Ray cluster whose nodes are hosts of their own, started as KubeRay starts its pods: a head without CPUs, and workers."""

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


class RayNodes:
    """The nodes.

    Attributes:
        head: the host that drivers run on.
        address: of the cluster, for `scale.address`.
        environment: variables that drivers need.
    """

    def __init__(self, head: Host, folder: Path) -> None:
        """Start the head; `folder` has to be short, Ray's sockets lie in it."""
        self.head = head
        self.address = f"{head.address}:{PORT}"
        self.environment: Mapping[str, str] = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "a" * 64,
            "RAY_USAGE_STATS_ENABLED": "0",
            "HOME": str(folder),
        }
        self._folder = folder
        self._processes: dict[Host, subprocess.Popen[bytes]] = {}
        self._start(head, "--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")

    def join(self, host: Host, *, cpus: int = 1) -> None:
        """Start a worker node, and wait until the cluster has it."""
        self._start(host, f"--address={self.address}", f"--num-cpus={cpus}")

    def lose(self, host: Host) -> None:
        """Kill everything on a node, as a host that loses its power does."""
        with suppress(ProcessLookupError):  # it could not start
            os.killpg(self._processes.pop(host).pid, signal.SIGKILL)

    def stop(self) -> None:
        """Kill every node."""
        for host in list(self._processes):
            self.lose(host)

    def _start(self, host: Host, *arguments: str) -> None:
        log = self._folder / f"{host.namespace}.log"
        command = [*host.prefix, str(Path(sys.executable).with_name("ray")), "start", "--block"]
        command += [f"--node-ip-address={host.address}", f"--object-store-memory={_OBJECT_STORE_BYTES}", *arguments]
        if "--head" in arguments:
            command.append(f"--temp-dir={self._folder}")
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
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)


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
