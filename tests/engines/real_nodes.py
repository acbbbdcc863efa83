"""A control plane with two real nodes of the dev environment, and an image for their pods."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.stream import stream

from infra.kube.api import KubernetesApi
from infra.kube.client import authority_of
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.node import prerequisites
from infra.lifecycle.sandbox.node.cluster import RealNodes
from infra.lifecycle.sandbox.node.images import import_image, write_image
from infra.lifecycle.sandbox.node.request import requested
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.settings import load_environment
from tests.engines.kubernetes import engine_environment, engine_programs
from tests.engines.report_table import ran, skipped
from tests.waiting import wait_until

NAME = "real Kubernetes nodes"
IMAGE = "sandbox.local/shell:1"

_RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Pods:
    """Pods on a cluster with real nodes."""

    cluster: KubernetesApi
    folder: Path
    services: Sequence[str] = ()

    def pod(self, name: str, script: str, *, node: str | None = None, **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a PodSpec
        """A pod that runs a script of bash as Pod Security's level `restricted` demands.

        Args:
            name: its name, also its label `app`.
            script: the script.
            node: the group that it runs on.
            **spec: more fields of the PodSpec; `resources` and `ports` are the container's.
        """
        container: Manifest = {
            "name": "main",
            "image": IMAGE,
            "command": ["/bin/bash", "-c", script],
            "securityContext": _RESTRICTED,
            **{key: spec.pop(key) for key in ("resources", "ports") if key in spec},
        }
        selector = {"ray-train-platform/group": node} if node else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": selector,
                "containers": [container],
                **spec,
            },
        }

    @contextmanager
    def applied(self, *manifests: Manifest) -> Iterator[None]:
        """Objects that exist while the context is open."""
        try:
            for manifest in manifests:
                self.cluster.apply(manifest)
            yield
        finally:
            self.remove(*manifests)

    def remove(self, *manifests: Manifest) -> None:
        """Delete objects, and wait until they are gone."""
        for manifest in manifests:
            self.cluster.delete(manifest)
        wait_until(lambda: not any(self.cluster.read(manifest) for manifest in manifests))

    def await_phase(self, pod: Mapping[str, Any], phase: str) -> Manifest:
        """Wait for a phase of a pod."""
        return self.cluster.await_(pod, lambda found: found["status"].get("phase") == phase, what=phase, seconds=90)

    def log(self, pod: Mapping[str, Any]) -> str:
        """The output of a pod, through the API server and the kubelet."""
        metadata = pod["metadata"]
        return "\n".join(self.cluster.log(metadata["name"], namespace=metadata["namespace"]))

    def run(self, pod: Mapping[str, Any], *command: str) -> str:
        """The output of a command in a running pod, through the API server and the kubelet."""
        metadata = pod["metadata"]
        with self.websocket_client() as client:
            connect = CoreV1Api(client).connect_get_namespaced_pod_exec
            return str(
                stream(
                    connect, metadata["name"], metadata["namespace"], command=list(command), stdout=True, stderr=True
                )
            )

    @contextmanager
    def websocket_client(self) -> Iterator[ApiClient]:
        """A client that can open WebSockets, for which the official client needs the CA certificate in a file."""
        settings = deepcopy(self.cluster.client.configuration)
        with tempfile.NamedTemporaryFile() as authority:
            authority.write(authority_of(self.cluster.client))
            authority.flush()
            settings.ssl_ca_cert = authority.name
            yield ApiClient(settings)


def needs_real_nodes() -> dict[str, str]:
    """Environment variables for a sandbox with real nodes; skips where this machine cannot have them."""
    environment = engine_environment()
    engine_programs()
    try:
        prerequisites.check(Path.cwd() / "nodes", environment)
    except RefusedError as error:
        skipped(NAME, error.args[0].partition("\n")[0], error.remedy or "")
    return environment


def shell_image(folder: Path) -> Path:
    """The archive of an image with bash and a static busybox; skips without them.

    busybox has the programs, and bash resolves names, which a static program cannot.
    """
    path = f"{os.environ['PATH']}:/bin"
    busybox, bash = shutil.which("busybox", path=path), shutil.which("bash", path=path)
    if busybox is None or bash is None or _libraries(busybox):
        skipped(NAME, "no static busybox, or no bash", "apt-get install busybox-static bash")
    archive = folder / "shell.tar"
    files = {"/bin/busybox": Path(busybox), "/bin/bash": Path(bash), **{str(file): file for file in _libraries(bash)}}
    write_image(archive, name=IMAGE, files=files, entrypoint=["/bin/bash"])
    return archive


def _libraries(program: str) -> list[Path]:
    """The shared libraries of a program with their loader; none if it is static."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    words = (word for line in listed.splitlines() for word in line.split() if word.startswith("/"))
    return [Path(word) for word in words]


@pytest.fixture(scope="session")
def real_nodes() -> Iterator[Pods]:
    """A control plane with two real nodes, one of them with GPUs that do not exist; skips where this machine cannot have them."""
    environment, programs = needs_real_nodes(), engine_programs()
    nodes = requested(("system=1", "a10g=1"), load_environment("dev"), catalog=load_catalog())
    folder = Path(tempfile.mkdtemp(prefix="rtp-nodes-"))
    try:
        archive = shell_image(folder)
        with (
            RealNodes(folder / "plane", nodes, environment) as real,
            ControlPlane(folder / "plane", programs=programs, nodes=real.access) as plane,
        ):
            real.start(plane)
            import_image(folder / "plane", archive)
            archive.unlink()
            cluster = KubernetesApi(plane.client())
            cluster.await_(
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}},
                lambda _: True,
                what="created",
            )
            ran(NAME)
            yield Pods(cluster, plane.folder, real.services.prefix)
    finally:
        shutil.rmtree(folder)
