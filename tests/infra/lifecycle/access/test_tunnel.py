"""A tunnel to a real API server; `aws ssm start-session`, which needs AWS, is a double that forwards the port itself."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
import yaml

from infra.kube.connection import connect_to
from infra.lifecycle.access.connection import connection
from infra.lifecycle.access.tunnel import find_node, open_tunnel
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.names import STACK_TAG, stack_tag
from infra.spec.outputs import ClusterOutput
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.access.test_reach import Machine
from tests.infra.lifecycle.existing.network import account

FORWARDER = Path(__file__).with_name("forward.py")
PROD = settings_of("prod")


@pytest.fixture
def session() -> Iterator[boto3.Session]:
    with account() as one:
        yield one


def run_nodes(session: boto3.Session, *names: str) -> list[str]:
    """Start instances of the cluster with these Name tags; returns their IDs."""
    ids = []
    for name in names:
        tags = [{"Key": "Name", "Value": name}, {"Key": STACK_TAG, "Value": stack_tag(PROD)}]
        one = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1}
        spec = [{"ResourceType": "instance", "Tags": tags}]
        [instance] = session.client("ec2").run_instances(**one, TagSpecifications=spec)["Instances"]
        ids.append(instance["InstanceId"])
    return ids


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control_plane: ControlPlane) -> Callable[[str], Path]:
    """Puts `aws` and the plugin on PATH; `aws` notes its arguments, gets tokens, and runs a script for a session."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    [user] = yaml.safe_load(control_plane.kubeconfig.read_text())["users"]
    version = "client.authentication.k8s.io/v1beta1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": user["user"]}

    def put(session: str) -> Path:
        (tmp_path / "session-manager-plugin").write_text("#!/bin/sh\n")
        program = tmp_path / "aws"
        program.write_text(
            f"#!/bin/sh\ncase $1 in\nssm) printf '%s\\n' \"$@\" > {tmp_path}/said; {session} ;;\n"
            f"*) echo '{json.dumps(credential)}' ;;\nesac\n"
        )
        for file in (program, tmp_path / "session-manager-plugin"):
            file.chmod(0o755)
        return tmp_path / "said"

    return put


def test_a_system_node_that_runs_is_found(session: boto3.Session) -> None:
    with pytest.raises(RefusedError, match="cluster rtp-prod has no running system node") as caught:
        find_node(PROD, session)
    assert "make up ENV=prod" in caught.value.remedy
    gpu, stopped, running = run_nodes(session, "h100", "system", "system-us-east-1b")
    session.client("ec2").stop_instances(InstanceIds=[stopped])
    assert find_node(PROD, session) == running != gpu


@pytest.mark.extended
def test_a_command_reaches_the_api_server_through_the_tunnel(
    session: boto3.Session,
    programs: Callable[[str], Path],
    control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The certificate is checked for the endpoint's name, not the tunnel's."""
    monkeypatch.delenv("RTP_API_SERVER", raising=False)
    [found] = yaml.safe_load(control_plane.kubeconfig.read_text())["clusters"]
    server, authority = found["cluster"]["server"], found["cluster"]["certificate-authority-data"]
    said = programs(f'exec {sys.executable} {FORWARDER} {server} "$@"')
    [node] = run_nodes(session, "system")
    cluster = ClusterOutput(name="rtp-prod", endpoint=server, certificate_authority=authority, kubernetes="1.35")
    lines: list[str] = []
    with connection(PROD, session, server, Machine(address=None), say=lines.append):
        tunnel = os.environ["RTP_API_SERVER"]
        assert tunnel != server
        api = connect_to(cluster, region="us-east-1")
        assert api.server == tunnel
        assert api.read({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}) is not None
    assert "RTP_API_SERVER" not in os.environ
    assert lines == [f"the private endpoint is reached through a tunnel, {tunnel}"]
    arguments = said.read_text().split("\n")
    document = "AWS-StartPortForwardingSessionToRemoteHost"
    expected = f"ssm start-session --region us-east-1 --target {node} --document-name {document}"
    assert arguments[: arguments.index("--parameters")] == expected.split()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(tunnel.rpartition(":")[2]))) != 0, "the tunnel is closed"


def test_what_a_tunnel_lacks_is_named(session: boto3.Session, programs: Callable[[str], Path], tmp_path: Path) -> None:
    def refused(error: type[PlatformError], said: str, *, port: int = 0) -> None:
        with pytest.raises(error, match=said), open_tunnel(PROD, session, "https://example.com", port=port):
            pass

    programs("echo 'TargetNotConnected: i-1 is not connected.' >&2; exit 254")
    run_nodes(session, "system")
    refused(PlatformError, r"no SSM session with node i-\w+: TargetNotConnected")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(RefusedError, "is in use", port=taken.getsockname()[1])
    (tmp_path / "session-manager-plugin").unlink()
    refused(RefusedError, "no `session-manager-plugin` on PATH")
