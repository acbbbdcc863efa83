"""The stack and the team of a command, the kubeconfig that kubectl gets for its cluster, and forwarded ports, by real processes."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.sandbox.processes import free_ports
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.errors import SettingsError as StackSettingsError
from tests.training.cluster import local_kubectl
from tests.training.cluster.team_cluster import dev_outputs, outputs_file, target
from tests.training.cluster.uis.upstream import upstream
from training.cluster.context import read_target, team_named
from training.cluster.kubectl import kubectl_for
from training.cluster.port_forward import port_forward
from training.errors import SettingsError
from training.local_port import local_port


def test_the_outputs_are_read_from_a_file_that_the_environment_may_name(tmp_path: Path) -> None:
    file = outputs_file(tmp_path)
    for given, environment in ((file, {}), (None, {"RTP_STACK_OUTPUTS": str(file)})):
        assert read_target("dev", file=given, environment=environment).outputs == target().outputs


def test_outputs_that_are_missing_or_of_another_environment_or_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StackSettingsError, match="absent"):
        read_target("dev", file=tmp_path / "absent", environment={})
    with pytest.raises(SettingsError, match="outputs of environment dev, not of prod"):
        read_target("prod", file=outputs_file(tmp_path), environment={})
    with pytest.raises(RefusedError, match=r"the stack is 9\.9\.9"):
        read_target("dev", file=outputs_file(tmp_path, platform="9.9.9"), environment={})


def test_without_pulumi_and_without_a_file_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PlatformError, match="no `pulumi` on PATH"):
        read_target("dev", file=None, environment={})


def test_a_team_must_be_named_unless_there_is_one() -> None:
    (team, *_) = dev_outputs()["teams"]
    assert team_named(target(teams=[team]).outputs, None).name == team["name"]
    with pytest.raises(SettingsError, match=r"has 2 teams, choose one\n.*\(--team\), one of research, platform"):
        team_named(target().outputs, None)
    with pytest.raises(SettingsError, match=r"has no team reserch\n.*did you mean research"):
        team_named(target().outputs, "reserch")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a kubectl on PATH."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kubeconfig(**environment: str) -> Path:
    """The kubeconfig of a command for the dev stack."""
    made = kubectl_for(target().outputs, namespace="research", kubeconfig=None, environment=environment)
    [given] = [word for word in made.command() if word.startswith("--kubeconfig=")]
    return Path(given.removeprefix("--kubeconfig="))


def cluster_of(file: Path) -> dict[str, Any]:
    [found] = json.loads(file.read_text())["clusters"]
    cluster: dict[str, Any] = found["cluster"]
    return cluster


def test_every_command_uses_the_same_file_or_that_of_the_user_and_the_same_tunnel(folder: Path) -> None:
    first = kubeconfig()
    assert kubeconfig() == first
    assert list((folder / ".local" / "kubeconfigs").iterdir()) == [first]
    assert cluster_of(first)["server"] == target().outputs.cluster.endpoint
    through = cluster_of(kubeconfig(RTP_API_SERVER="https://localhost:8443"))
    assert through["server"] == "https://localhost:8443"
    assert f"https://{through['tls-server-name']}" == target().outputs.cluster.endpoint.lower()
    assert kubeconfig(KUBECONFIG="mine") == Path("mine")


@pytest.fixture
def server() -> Iterator[int]:
    """Port of a server in the place of the pod's."""
    with upstream() as found:
        yield found.port


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECTL_FORWARDS", str(tmp_path))
    monkeypatch.setenv("KUBECTL_CUT", str(tmp_path / "cut"))
    return tmp_path / "cut"


def forwarding(local: int, remote: int) -> list[str]:
    return [sys.executable, str(Path(local_kubectl.__file__)), "port-forward", "pod/head", f"{local}:{remote}"]


def test_a_forward_that_stays_but_passes_nothing_on_is_broken(server: int, cut: Path) -> None:
    (local,) = free_ports(1)
    with port_forward(forwarding(local, server), url=f"http://127.0.0.1:{local}/") as forward:
        forward.await_open()
        cut.touch()
        assert forward.await_broken(probe_seconds=0.01) == "nothing answers any more"


def test_a_command_that_ends_is_broken_with_its_last_words_whole_and_without_colours(server: int) -> None:
    said = f"{'first ' * 100}\x1b[1mec2\x1b[22m: Unable to locate credentials"
    command = [sys.executable, "-c", f"import sys; sys.exit({said!r})"]
    with port_forward(command, url=f"http://127.0.0.1:{server}/") as forward:
        words = forward.await_broken()
        assert words.startswith("… first first ")
        assert words.endswith(" first ec2: Unable to locate credentials")
        # The server answers at that address, but not through the command.
        with pytest.raises(ConnectionError, match="Unable to locate credentials"):
            forward.await_open()


def test_a_forward_to_nothing_does_not_open(cut: Path) -> None:
    local, nothing = free_ports(2)
    with (
        port_forward(forwarding(local, nothing), url=f"http://127.0.0.1:{local}/") as forward,
        pytest.raises(ConnectionError),
    ):
        forward.await_open(seconds=5)
    assert not cut.exists()


def test_the_usual_port_gives_way_and_a_wanted_one_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert local_port(0, usual=port) not in {0, port}
        with pytest.raises(RefusedError, match=f"port {port} of this machine is in use"):
            local_port(port, usual=8888)
    assert local_port(0, usual=port) == port
