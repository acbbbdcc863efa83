"""A real node pulls from the sandbox's registry."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.kube.connection import connect_with
from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.sandbox import detached
from infra.lifecycle.sandbox.images.registry import PORT, answers
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.spec.release import load_release
from tests.distribution import REAL_NODES
from tests.engines.kubernetes import engine_environment
from tests.engines.oci_registry import push_image
from tests.engines.real_nodes import Pods, needs_real_nodes, shell_image
from tests.engines.sandbox_registry import registry_program
from tests.infra.lifecycle.sandbox.node.test_end import start

pytestmark = pytest.mark.xdist_group(REAL_NODES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a sandbox whose registry keeps its images in the test's folder."""
    needs_real_nodes()
    registry_program()
    for name, value in {**engine_environment(), "RTP_REGISTRY": str(tmp_path / "registry")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    found = tmp_path / ".local" / "sandbox"
    yield found
    detached.stop(found)


def shell_layer(folder: Path) -> bytes:
    """The layer of the image with a shell."""
    with tarfile.open(shell_image(folder)) as archive:
        layer = archive.extractfile("layer.tar")
        assert layer is not None
        return layer.read()


def test_a_pod_runs_an_image_that_its_node_pulls_by_digest(folder: Path, tmp_path: Path) -> None:
    start(folder)
    api, trainer = connect_with(kubeconfig_in(folder)), load_release().images["trainer"]
    host = f"{urlsplit(api.client.configuration.host).hostname}:{PORT}"
    registry, pods = PlainRegistry(host, "rtp-dev"), Pods(api, folder)
    pushed = push_image(registry.remote(trainer), "shell", [shell_layer(tmp_path)])
    pod = pods.pod("pulled", "exit 0", node="system")
    pod["spec"]["containers"][0]["image"] = f"{registry.repository(trainer)}@{pushed.digest}"
    api.apply(pod)
    status = pods.await_phase(pod, "Succeeded")["status"]
    assert status["containerStatuses"][0]["imageID"] == f"{registry.repository(trainer)}@{pushed.digest}"
    detached.stop(folder)
    assert not answers(host)
    assert (tmp_path / "registry").is_dir()
