"""Connects to the cluster in a stack's outputs, and to no other."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from infra.kube.aws_errors import aws_refusal
from infra.spec.errors import RefusedError
from infra.spec.outputs import StackOutputs

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def connect(outputs: StackOutputs, *, kubeconfig: Path | None, environment: Mapping[str, str]) -> KubernetesApi:
    """A connection to the stack's cluster.

    Without a kubeconfig or $KUBECONFIG, the endpoint is that of the outputs and the token that of `aws eks get-token`.
    ~/.kube/config is not read: its current context may be any cluster.

    Raises:
        RefusedError: the context or the AWS account is not the stack's, or `aws` is missing.
        SettingsError: the kubeconfig cannot be read.
    """
    try:
        from infra.kube.client import authority_of  # noqa: PLC0415 - not in the trainer's environment
        from infra.kube.connection import connect_to, connect_with  # noqa: PLC0415
    except ImportError as error:
        raise RefusedError(
            "the Kubernetes client is not installed in this environment", remedy="make env FOR=infra"
        ) from error
    file = kubeconfig or (Path(environment["KUBECONFIG"]) if environment.get("KUBECONFIG") else None)
    if file is None:
        check_account(outputs)
        return connect_to(outputs.cluster, region=outputs.region)
    api = connect_with(file)
    _check_cluster(outputs, api, authority_of(api.client), file=file)
    return api


def check_account(outputs: StackOutputs) -> None:
    """Refuse AWS credentials of another account than the stack's.

    Raises:
        RefusedError: another account, no valid credentials, or AWS does not answer.
    """
    import boto3  # noqa: PLC0415 - not in the trainer's environment
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        account = boto3.Session(region_name=outputs.region).client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise aws_refusal(
            f"no AWS account to reach stack {outputs.environment} with",
            error,
            remedy="sign in, e.g. `aws sso login`, or name a kubeconfig of the cluster with --kubeconfig FILE",
        ) from error
    if account != outputs.account:
        raise RefusedError(
            f"the AWS credentials are of account {account}, stack {outputs.environment} is in {outputs.account}",
            remedy="use the profile of the stack's account, e.g. AWS_PROFILE=…",
        )


def _check_cluster(outputs: StackOutputs, api: KubernetesApi, authority: bytes, *, file: Path) -> None:
    """Refuse a cluster with another endpoint, unless it presents the stack's CA, as through a tunnel."""
    cluster = outputs.cluster
    if api.server.rstrip("/") == cluster.endpoint.rstrip("/"):
        return
    if (
        api.client.configuration.verify_ssl
        and authority.strip() == base64.b64decode(cluster.certificate_authority).strip()
    ):
        return
    raise RefusedError(
        f"the current context of {file} is {api.server}, the cluster of stack {outputs.environment} is {cluster.endpoint}",
        remedy="choose the stack's context (kubectl config use-context), or omit the kubeconfig",
    )
