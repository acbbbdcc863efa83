"""The way to the cluster of a stack, and to no other: the stack's outputs say which one it is."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.spec import kubeconfig as way
from infra.spec.outputs import StackOutputs
from training.cluster.errors import ClusterRefusedError
from training.errors import SettingsError

if TYPE_CHECKING:
    from training.cluster.api import Api


def connect(outputs: StackOutputs, *, kubeconfig: Path | None, environment: Mapping[str, str]) -> Api:
    """A connection to the stack's cluster.

    Without a kubeconfig, named here or by $KUBECONFIG, it is made out of the outputs, with the token that
    `aws eks get-token` gives for the AWS credentials of this environment. ~/.kube/config is not looked at: which context
    happens to be current there says nothing of the environment that was asked for.

    Raises:
        ClusterRefusedError: the context is another cluster's, the AWS account another one, or `aws` is missing.
        SettingsError: the kubeconfig cannot be read.
    """
    try:
        from kubernetes import client, config  # noqa: PLC0415 - not in the trainer's environment

        from training.cluster.api import Api  # noqa: PLC0415
    except ImportError as error:
        raise ClusterRefusedError(
            "the Kubernetes client is not installed in this environment", remedy="make env FOR=infra"
        ) from error
    settings = client.Configuration()
    # Once more at once where a kept connection was closed meanwhile; who waits longer decides that himself.
    settings.retries = 1
    named = kubeconfig or (Path(environment["KUBECONFIG"]) if environment.get("KUBECONFIG") else None)
    if named is None:
        check_account(outputs)
        config.load_kube_config_from_dict(kubeconfig_of(outputs), client_configuration=settings)
        return Api(client.ApiClient(settings))
    try:
        _, current = config.list_kube_config_contexts(str(named))
        config.load_kube_config(str(named), client_configuration=settings)
    except (config.ConfigException, OSError) as error:
        raise SettingsError(f"kubeconfig {named}: {error}", remedy="name another with --kubeconfig FILE") from error
    _check_cluster(outputs, settings, place=f"context {current['name']} of {named}")
    return Api(client.ApiClient(settings))


def kubeconfig_of(outputs: StackOutputs) -> dict[str, Any]:
    """A kubeconfig with the stack's cluster only.

    Raises:
        ClusterRefusedError: there is no `aws` to get a token with.
    """
    if shutil.which(way.PROGRAM) is None:
        raise ClusterRefusedError(
            "no `aws` on PATH, which gives the token for the cluster",
            remedy="install the AWS CLI, version 2, or name a kubeconfig of the cluster with --kubeconfig FILE",
        )
    cluster = outputs.cluster
    return way.kubeconfig(
        name=cluster.name,
        endpoint=cluster.endpoint,
        authority=cluster.certificate_authority,
        region=outputs.region,
    )


def check_account(outputs: StackOutputs) -> None:
    """Refuse AWS credentials of another account than the stack's.

    Raises:
        ClusterRefusedError: another account, or no valid credentials.
    """
    import boto3  # noqa: PLC0415 - not in the trainer's environment
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        account = boto3.client("sts", region_name=outputs.region).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise ClusterRefusedError(
            f"no AWS account to reach stack {outputs.environment} with: {error}",
            remedy="sign in, e.g. `aws sso login`, or name a kubeconfig of the cluster with --kubeconfig FILE",
        ) from error
    if account != outputs.account:
        raise ClusterRefusedError(
            f"these AWS credentials are of account {account}, stack {outputs.environment} is in {outputs.account}",
            remedy="use the profile of the stack's account, e.g. AWS_PROFILE=…",
        )


def _check_cluster(outputs: StackOutputs, settings: Any, *, place: str) -> None:  # noqa: ANN401 - no types
    """The same cluster answers at its endpoint, or, through a tunnel, elsewhere with the certificate of its own CA."""
    cluster = outputs.cluster
    if settings.host.rstrip("/") == cluster.endpoint.rstrip("/"):
        return
    authority = Path(settings.ssl_ca_cert).read_bytes() if settings.ssl_ca_cert else b""
    if settings.verify_ssl and authority.strip() == base64.b64decode(cluster.certificate_authority).strip():
        return
    raise ClusterRefusedError(
        f"{place} is {settings.host}, the cluster of stack {outputs.environment} is {cluster.endpoint}",
        remedy="choose the stack's context (kubectl config use-context), or leave the kubeconfig out",
    )
