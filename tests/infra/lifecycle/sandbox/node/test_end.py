"""What is left of real nodes, however their keeper ends; and what a node survives."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.kube.connection import connect_with
from infra.lifecycle.cli import main
from infra.lifecycle.sandbox import detached
from infra.lifecycle.sandbox.keeper import lock_of
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.node import cgroups
from infra.lifecycle.sandbox.node.addresses import name_of
from infra.lifecycle.sandbox.node.images import import_image
from infra.lifecycle.sandbox.node.request import requested
from infra.spec.catalog import load_catalog
from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest
from infra.spec.settings import load_environment
from tests.distribution import REAL_NODES
from tests.engines.real_nodes import NAME, Pods, needs_real_nodes, shell_image
from tests.engines.report_table import ran
from tests.infra.lifecycle.sandbox.folders import sandbox_folder
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group(REAL_NODES)

_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    needs_real_nodes()
    ran(NAME)
    with sandbox_folder(tmp_path) as found:
        yield found


def traces(folder: Path) -> list[str]:
    """Everything on this machine that belongs to a sandbox: processes, mounts, links, cgroups and files."""
    name = name_of(folder)
    found = [str(path) for hierarchy in cgroups.hierarchies() if (path := hierarchy.mount / name).exists()]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    found += [str(path) for path in [*Path("/sys/class/net").glob(name), *folder.parent.glob("*")]]
    return found + [f"process {process}" for process in processes_of(folder)]


def processes_of(folder: Path) -> dict[int, str]:
    """Command lines of the processes that name the folder, or are in the sandbox's cgroup."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text().replace("\0", " ")
            (entry / "exe").readlink()  # a zombie has none
            if str(folder) in command or name_of(folder) in (entry / "cgroup").read_text():
                found[int(entry.name)] = command
        except OSError:  # the process has exited
            continue
    return found


def host_rules() -> list[str]:
    """This machine's rules of iptables that could be a node's."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return [line for line in saved.splitlines() if "KUBE" in line or "10.208." in line]


def start(folder: Path) -> None:
    """Start a sandbox with one real node, and with one CRD, because the operators' take most of the time."""
    nodes = requested(["system=1"], load_environment("dev"), catalog=load_catalog())
    crds = folder.parent.parent / "crds"
    crds.mkdir(parents=True, exist_ok=True)
    (crds / "widgets.yaml").write_text(_CRD)
    detached.start(folder, crds=crds, nodes=nodes)


def start_pod(folder: Path) -> None:
    import_image(folder, shell_image(folder.parent.parent))
    staying_pod(Pods(connect_with(kubeconfig_in(folder)), folder))


def staying_pod(pods: Pods) -> Manifest:
    """A pod that does not end; it runs."""
    pod = pods.pod("stays", "while true; do busybox sleep 1; done", node="system")
    pods.cluster.apply(pod)
    return pods.await_phase(pod, "Running")


def test_a_stopped_sandbox_with_a_real_node_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Path("/proc/sys/vm/overcommit_memory").read_text(), Path("/proc/sys/kernel/panic").read_text()
    assert main(["sandbox", "--env", "dev", "--real", "system=1", "--images", "none"]) == 0
    assert "and 1 real: system-0" in capsys.readouterr().out
    start_pod(folder)
    assert main(["sandbox", "--env", "dev", "--real", "1"]) == 3
    assert "make sandbox-down" in capsys.readouterr().err
    assert host_rules() == []
    assert main(["sandbox-down"]) == 0
    assert traces(folder) == []
    assert settings == (Path("/proc/sys/vm/overcommit_memory").read_text(), Path("/proc/sys/kernel/panic").read_text())


def test_a_sandbox_whose_keeper_is_killed_can_be_started_again_and_leaves_nothing_when_stopped(folder: Path) -> None:
    start(folder)
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    wait_until(lambda: not detached.is_running(folder))
    start(folder)
    (node,) = connect_with(kubeconfig_in(folder)).items("v1", "Node")
    assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    start_pod(folder)
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    wait_until(lambda: not processes_of(folder))
    assert detached.stop(folder)
    assert traces(folder) == []
    assert host_rules() == []


@pytest.mark.extended
@pytest.mark.parametrize("program", ["node.namespace", "kubelet"])
def test_a_keeper_that_is_killed_while_it_starts_leaves_nothing_after_sandbox_down(folder: Path, program: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, folder)
        wait_until(
            lambda: starting.done() or any(f"{program} " in command for command in processes_of(folder).values())
        )
        os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
        assert isinstance(starting.exception(), PlatformError)
    detached.stop(folder)
    assert traces(folder) == []


@pytest.mark.extended
def test_two_sandboxes_have_addresses_and_names_of_their_own(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / ".local" / "sandbox"
    start(folder)
    try:
        start(other)
        assert connect_with(kubeconfig_in(folder)).server != connect_with(kubeconfig_in(other)).server
        start_pod(folder)
        start_pod(other)
    finally:
        detached.stop(other)
    assert traces(other) == []
    assert traces(folder) != []


@pytest.mark.parametrize("program", ["containerd", "kubelet", "kube-proxy"])
def test_a_node_survives_the_end_of_a_program(real_nodes: Pods, program: str) -> None:
    stays, after = staying_pod(real_nodes), real_nodes.pod("after", "echo done", node="system")
    before = _processes(real_nodes.folder, program)
    for process in before:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(_processes(real_nodes.folder, program) - before) == len(before))
    with real_nodes.applied(after):
        real_nodes.await_phase(after, "Succeeded")
    found = real_nodes.cluster.read(stays)
    assert found is not None
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0
    real_nodes.remove(stays)


def _processes(folder: Path, program: str) -> set[int]:
    commands = processes_of(folder).items()
    return {process for process, command in commands if Path(command.split(" ")[0]).name == program}
