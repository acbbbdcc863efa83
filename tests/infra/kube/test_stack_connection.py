"""Connecting to the stack's cluster, and to no other."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from infra.kube.stack_connection import connect
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.sandbox.processes import free_ports
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.outputs import StackOutputs
from tests.infra.kube.test_client import kubeconfig as kubeconfig_of
from tests.training.cluster.team_cluster import dev_outputs, target

MOTO_ACCOUNT = "123456789012"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nbW9jayBjZXJ0aWZpY2F0ZQ==\n-----END CERTIFICATE-----\n"


def outputs(**changes: object) -> StackOutputs:
    return target(**changes).outputs


def kubeconfig(folder: Path, *, server: str, authority: str = "another") -> Path:
    encoded = base64.b64encode(authority.encode()).decode()
    return kubeconfig_of(folder, server, cluster={"certificate-authority-data": encoded}, user={"token": "secret"})


def test_the_context_of_the_stacks_own_cluster_is_accepted_also_through_a_tunnel(tmp_path: Path) -> None:
    stack = outputs()
    api = connect(stack, kubeconfig=kubeconfig(tmp_path, server=stack.cluster.endpoint), environment={})
    assert api.server == stack.cluster.endpoint
    encoded = base64.b64encode(AUTHORITY.encode()).decode()
    stack = outputs(cluster={**dev_outputs()["cluster"], "certificate_authority": encoded})
    file = kubeconfig(tmp_path, server="https://127.0.0.1:8443", authority=AUTHORITY)
    assert connect(stack, kubeconfig=file, environment={}).server == "https://127.0.0.1:8443"


def test_the_context_of_another_cluster_and_a_missing_kubeconfig_are_refused(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, server="https://prod.example")
    cases: list[tuple[Path | None, dict[str, str]]] = [(file, {}), (None, {"KUBECONFIG": str(file)})]
    for given, environment in cases:
        with pytest.raises(RefusedError, match=r"current context of .* is https://prod\.example, the cluster of stack"):
            connect(outputs(), kubeconfig=given, environment=environment)
    with pytest.raises(SettingsError, match="absent"):
        connect(outputs(), kubeconfig=tmp_path / "absent", environment={})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS as moto fakes it, and credentials of its account."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
def test_credentials_of_another_account_and_a_missing_aws_cli_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=f"of account {MOTO_ACCOUNT}, stack dev is in 111122223333"):
        connect(outputs(), kubeconfig=None, environment={})
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RefusedError, match="no `aws` on PATH"):
        connect(outputs(account=MOTO_ACCOUNT), kubeconfig=None, environment={})


def test_without_credentials_the_account_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RefusedError, match="no AWS account to reach stack dev with"):
        connect(outputs(), kubeconfig=None, environment={})


@pytest.mark.usefixtures("no_sts")
def test_an_endpoint_that_does_not_answer_is_no_lack_of_credentials() -> None:
    for ask in (
        lambda: connect(outputs(), kubeconfig=None, environment={}),
        lambda: caller_of(boto3.Session(region_name="us-east-1")),
    ):
        with pytest.raises(RefusedError, match=r"(?s)AWS does not answer: .*remedy: check the network") as caught:
            ask()
        assert "sign in" not in str(caught.value)


@pytest.fixture
def no_sts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials it finds
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
