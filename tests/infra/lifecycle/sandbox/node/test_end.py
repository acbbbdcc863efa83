"""What is left of real nodes, however their keeper ends; and what a node survives."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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
from infra.lifecycle.sandbox.node.request import RealNode, requested
from infra.spec.catalog import load_catalog
from infra.spec.settings import load_environment
from tests.distribution import REAL_NODES
from tests.engines.kubernetes import engine_environment
from tests.engines.real_nodes import Pods, needs_real_nodes, shell_image
from tests.training.cluster.team_cluster import wait_until

pytestmark = pytest.mark.xdist_group(REAL_NODES)

_NODE = "system-0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a sandbox started from an empty directory; stops what the test leaves running."""
    needs_real_nodes()
    for name, value in engine_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    found = tmp_path / ".local" / "sandbox"
    yield found
    detached.stop(found)


def one_node() -> tuple[RealNode, ...]:
    """One real node."""
    return requested(["system=1"], load_environment("dev"), catalog=load_catalog())


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


def start_pod(folder: Path) -> Pods:
    """Start a pod that does not end, and wait until it runs."""
    pods = Pods(connect_with(kubeconfig_in(folder)))
    import_image(folder, shell_image(folder.parent.parent))
    pod = pods.pod("stays", "while true; do busybox sleep 1; done", node="system")
    pods.cluster.apply(pod)
    pods.await_phase(pod, "Running")
    return pods


def test_a_sandbox_with_a_real_node_leaves_nothing_when_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Path("/proc/sys/vm/overcommit_memory").read_text(), Path("/proc/sys/kernel/panic").read_text()
    started = time.monotonic()
    assert main(["sandbox", "--env", "dev", "--real", "system=1", "--images", "none"]) == 0
    print(f"{time.monotonic() - started:.1f} s until the sandbox was ready")
    assert "and 1 real: system-0" in capsys.readouterr().out
    start_pod(folder)
    assert main(["sandbox", "--env", "dev", "--real", "1"]) == 3
    assert "make sandbox-down" in capsys.readouterr().err
    assert host_rules() == []
    assert main(["sandbox-down"]) == 0
    assert traces(folder) == []
    assert settings == (Path("/proc/sys/vm/overcommit_memory").read_text(), Path("/proc/sys/kernel/panic").read_text())


def test_after_its_keeper_is_killed_nothing_runs_and_sandbox_down_leaves_nothing(folder: Path) -> None:
    detached.start(folder, nodes=one_node())
    start_pod(folder)
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    wait_until(lambda: not processes_of(folder))
    assert detached.stop(folder)
    assert traces(folder) == []
    assert host_rules() == []


@pytest.mark.parametrize("program", ["namespace", "coredns", "containerd", "kubelet"])
def test_a_keeper_that_is_killed_while_it_starts_leaves_nothing_after_sandbox_down(folder: Path, program: str) -> None:
    process = subprocess.Popen(
        [
            "python3",
            "-c",
            "import sys; from infra.lifecycle.cli import main; main(['sandbox', '--env', 'dev', '--real', '1', '--images', 'none'])",
        ],
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: any(program in command for command in processes_of(folder).values()))
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    process.wait(60)
    detached.stop(folder)
    assert traces(folder) == []


def test_a_sandbox_starts_after_one_whose_keeper_was_killed(folder: Path) -> None:
    detached.start(folder, nodes=one_node())
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    wait_until(lambda: not detached.is_running(folder))
    detached.start(folder, nodes=one_node())
    assert _is_ready(folder)


@pytest.mark.parametrize("program", ["containerd", "kubelet", "kube-proxy"])
def test_a_node_survives_the_end_of_a_program(folder: Path, program: str) -> None:
    detached.start(folder, nodes=one_node())
    pods = start_pod(folder)
    before = _process(folder, program)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: _process(folder, program) not in {None, before})
    pod = pods.pod("after", "echo done", node="system")
    pods.cluster.apply(pod)
    pods.await_phase(pod, "Succeeded")
    stays = pods.cluster.read(pods.pod("stays", ""))
    assert stays is not None
    assert stays["status"]["containerStatuses"][0]["restartCount"] == 0


def _process(folder: Path, program: str) -> int | None:
    is_it: Callable[[str], bool] = lambda command: Path(command.split(" ")[0]).name == program  # noqa: E731
    return next((process for process, command in processes_of(folder).items() if is_it(command)), None)


def _is_ready(folder: Path) -> bool:
    (node,) = connect_with(kubeconfig_in(folder)).items("v1", "Node")
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
