"""The way to the stack's cluster: to that one and to no other, and a refusal within seconds where there is none."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from moto import mock_aws

from infra.spec.outputs import StackOutputs
from tests.engines.ports import free_port
from tests.training.cluster.stage import dev_outputs, target
from training.cluster.api import Api
from training.cluster.connection import connect, kubeconfig_of
from training.cluster.errors import ClusterRefusedError, LostConnectionError
from training.errors import SettingsError

MOTO_ACCOUNT = "123456789012"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nbW9jayBjZXJ0aWZpY2F0ZQ==\n-----END CERTIFICATE-----\n"


def outputs(**changes: object) -> StackOutputs:
    """The dev stack's outputs, with some replaced."""
    return target(**changes).outputs


def kubeconfig(folder: Path, *, server: str, authority: str = "another") -> Path:
    """A kubeconfig whose current context is at `server`."""
    encoded = base64.b64encode(authority.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": encoded}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "mine",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def test_the_stacks_own_endpoint_is_taken(tmp_path: Path) -> None:
    stack = outputs()
    api = connect(stack, kubeconfig=kubeconfig(tmp_path, server=stack.cluster.endpoint), environment={})
    assert api.server == stack.cluster.endpoint


def test_the_context_of_another_cluster_is_refused(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, server="https://prod.example")
    with pytest.raises(
        ClusterRefusedError, match=r"context mine of .* is https://prod\.example, the cluster of stack dev"
    ):
        connect(outputs(), kubeconfig=file, environment={})


def test_the_context_of_another_cluster_is_refused_where_the_environment_names_it(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, server="https://prod.example")
    with pytest.raises(ClusterRefusedError, match="context mine"):
        connect(outputs(), kubeconfig=None, environment={"KUBECONFIG": str(file)})


def test_the_same_cluster_behind_a_tunnel_is_known_by_its_authority(tmp_path: Path) -> None:
    encoded = base64.b64encode(AUTHORITY.encode()).decode()
    stack = outputs(cluster={**dev_outputs()["cluster"], "certificate_authority": encoded})
    file = kubeconfig(tmp_path, server="https://127.0.0.1:8443", authority=AUTHORITY)
    assert connect(stack, kubeconfig=file, environment={}).server == "https://127.0.0.1:8443"


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent"):
        connect(outputs(), kubeconfig=tmp_path / "absent", environment={})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS as moto plays it, and credentials of its account."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
def test_the_credentials_of_another_account_are_refused() -> None:
    with pytest.raises(ClusterRefusedError, match=f"of account {MOTO_ACCOUNT}, stack dev is in 111122223333"):
        connect(outputs(), kubeconfig=None, environment={})


@pytest.mark.usefixtures("aws")
def test_without_the_aws_program_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterRefusedError, match="no `aws` on PATH"):
        connect(outputs(account=MOTO_ACCOUNT), kubeconfig=None, environment={})


def test_without_credentials_there_is_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ClusterRefusedError, match="no AWS account to reach stack dev with"):
        connect(outputs(), kubeconfig=None, environment={})


def test_the_token_is_asked_for_the_stacks_cluster_and_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "aws"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (user,) = kubeconfig_of(outputs())["users"]
    assert user["user"]["exec"]["args"][:6] == [
        "--region",
        "us-east-1",
        "eks",
        "get-token",
        "--cluster-name",
        "rtp-dev",
    ]


def test_a_closed_port_is_told() -> None:
    api = Api(client.ApiClient(client.Configuration(host=f"https://127.0.0.1:{free_port()}")))
    with pytest.raises(LostConnectionError, match=r"does not answer: .*Connection refused"):
        api.read("/version")
