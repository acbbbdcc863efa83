"""The kubeconfig that kubectl gets for a stack's cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.cluster.team_cluster import target
from training.cluster.kubectl import kubectl_for


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
    """The cluster in a kubeconfig."""
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
