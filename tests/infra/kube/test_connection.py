"""Connections: token of a stack's cluster, cached discovery, and servers that do not answer."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from kubernetes import client

from infra.kube import api as module
from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_to, connect_with
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import SettingsError
from infra.spec.outputs import ClusterOutput
from tests.engines.ports import free_port

CREDENTIAL = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "x"}}


def nodes(port: int) -> None:
    """List the nodes of the API server on a port of this machine."""
    KubernetesApi(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))).items("v1", "Node")


def test_the_token_is_requested_for_the_cluster_and_its_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, said = tmp_path / "aws", tmp_path / "said"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {said}\necho '{json.dumps(CREDENTIAL)}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = ClusterOutput(name="rtp-dev", endpoint="https://c", certificate_authority="eA==", kubernetes="1.35")
    connect_to(cluster, region="us-east-1")
    assert said.read_text().startswith("--region us-east-1 eks get-token --cluster-name rtp-dev")


def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path) -> None:
    for content in (b"text", b"\xff\xfe", b"a: [", b"[]", b"clusters: 1", b"contexts: [{}]\ncurrent-context: x"):
        file = tmp_path / "kubeconfig"
        file.write_bytes(content)
        with pytest.raises(SettingsError, match=rf"kubeconfig {file}: .*\n  remedy: pass a valid one"):
            connect_with(file)


def test_a_closed_port_and_a_silent_server_are_lost_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionLostError, match=r"cannot list Node: the API server .* does not answer: .*refused"):
        nodes(free_port())
    monkeypatch.setattr(module, "_READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConnectionLostError, match="timed out"):
        nodes(listener.getsockname()[1])


def test_discovery_is_cached(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    requests: list[str] = []
    call = client.ApiClient.call_api

    def counted(self: client.ApiClient, method: str, url: str, *arguments: object, **options: object) -> object:
        requests.append(url)
        return call(self, method, url, *arguments, **options)

    monkeypatch.setattr(client.ApiClient, "call_api", counted)
    connect_with(control_plane.kubeconfig).items("v1", "Node")
    assert len(requests) == 4  # the version, the groups, the core group, and the nodes
    requests.clear()
    connect_with(control_plane.kubeconfig).items("v1", "Node")
    assert len(requests) == 1


def test_listing_an_unknown_kind_is_an_error_and_reading_it_is_none(control_plane: ControlPlane) -> None:
    api = connect_with(control_plane.kubeconfig)
    assert not api.serves("absent.example/v1", "Thing")
    assert api.read({"apiVersion": "absent.example/v1", "kind": "Thing", "metadata": {"name": "a"}}) is None
    with pytest.raises(ApiError, match=r"does not serve Thing of absent\.example/v1"):
        api.items("absent.example/v1", "Thing")
