"""A sandbox of the dev environment with two real nodes and the services that this machine has."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.kube.connection import connect_with
from infra.lifecycle.cli import main
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.node.images import import_image
from infra.lifecycle.sandbox.services.facts import PROMETHEUS_PORT, Services
from infra.spec.manifest import RESTRICTED_POD, Manifest
from tests.engines.prometheus import Prometheus
from tests.engines.real_nodes import Pods, needs_real_nodes, shell_image
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.sandbox.folders import sandbox_folder

TEAM = "research"


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox."""

    folder: Path
    pods: Pods
    services: Services

    @property
    def prometheus(self) -> Prometheus:
        """Its Prometheus; skips without it."""
        if not self.services.has_prometheus:
            skipped("Prometheus", "no prometheus found", "make engines, or apt-get install prometheus")
        ran("Prometheus")
        return Prometheus(f"http://{self.services.address}:{PROMETHEUS_PORT}")

    def team_pod(self, name: str, script: str, *, claim: str = "runs", **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a PodSpec
        """A pod of a team on any real node, with one of its claims at /mnt and what the namespace's rules demand."""
        resources = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "32Mi"}}
        pod = self.pods.pod(
            name,
            script,
            resources=resources,
            tolerations=[{"operator": "Exists"}],
            volumes=[{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}],
            securityContext=dict(RESTRICTED_POD),
            **spec,
        )
        pod["metadata"]["namespace"] = TEAM
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/mnt"}]
        return pod

    def output(self, pod: Mapping[str, Any]) -> str:
        """Run a pod to its end; returns its output."""
        self.pods.cluster.apply(pod)
        self.pods.await_phase(pod, "Succeeded")
        said = self.pods.log(pod)
        self.pods.remove(dict(pod))
        return said


@contextmanager
def running_sandbox() -> Iterator[Sandbox]:
    """Start a sandbox with real nodes, and stop it; skips where this machine cannot have them."""
    needs_real_nodes()
    with (
        tempfile.TemporaryDirectory(prefix="rtp-services-") as place,
        sandbox_folder(Path(place)) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RTP_STACK_OUTPUTS", str(folder / "outputs.json"))
        words = ["--real", "system=1", "--real", "a10g=1", "--images", "none"]
        assert main(["sandbox", "--env", "dev", *words]) == 0
        import_image(folder, shell_image(Path(place)))
        services = Services.read(folder)
        assert services is not None
        yield Sandbox(folder, Pods(connect_with(kubeconfig_in(folder)), folder), services)


def shared_memory() -> tuple[str, ...]:
    """Shared memory of this machine that outlives processes: IDs of segments, and files."""
    listed = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=False).stdout.splitlines()
    # Without the number of processes that have one attached, which changes all the time.
    segments = [line.split()[1] for line in listed if line.startswith("0x")]
    return (*segments, *sorted(str(path) for path in Path("/dev/shm").glob("PostgreSQL*")))
