"""Connections to API servers: through a kubeconfig, or to a stack's cluster with a token from the AWS CLI."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from kubernetes.client import ApiClient

from infra.kube.api import KubernetesApi
from infra.kube.client import client_from, client_of
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.kubeconfig import PROGRAM, kubeconfig
from infra.spec.outputs import ClusterOutput

API_SERVER = "RTP_API_SERVER"
"""Environment variable: URL to connect to instead of the endpoint of a stack's cluster, as `make tunnel` prints it."""


def api_server(environment: Mapping[str, str] = os.environ) -> str:
    """The value of RTP_API_SERVER; empty if it is not set.

    Raises:
        SettingsError: it is not a URL with https and a host.
    """
    url = environment.get(API_SERVER, "")
    if url and not re.fullmatch(r"https://[^\s/@]+/?", url):
        raise SettingsError(f"{API_SERVER}={url!r} must be https://HOST:PORT", remedy="e.g. https://localhost:8443")
    return url.rstrip("/")


def connect_with(file: Path) -> KubernetesApi:
    """Connect to the cluster of a kubeconfig's current context; raises like `infra.kube.client.client_of`."""
    return _with_discovery_cache(client_of(file))


def connect_to(cluster: ClusterOutput, *, region: str) -> KubernetesApi:
    """Connect to a stack's EKS cluster with this environment's AWS credentials; ~/.kube/config is not read.

    Raises:
        RefusedError: `aws`, which gets the token, is not on PATH.
        SettingsError: RTP_API_SERVER is not a URL.
    """
    if shutil.which(PROGRAM) is None:
        raise RefusedError(
            f"no `{PROGRAM}` on PATH to get a token for cluster {cluster.name}",
            remedy="install the AWS CLI, version 2; job commands also accept --kubeconfig FILE",
        )
    document = kubeconfig(
        name=cluster.name,
        endpoint=cluster.endpoint,
        authority=cluster.certificate_authority,
        region=region,
        via=api_server(),
    )
    return _with_discovery_cache(client_from(document))


def _with_discovery_cache(connection: ApiClient) -> KubernetesApi:
    return KubernetesApi(connection, discovery_cache=_discovery_cache(connection.configuration.host))


def _discovery_cache(server: str) -> Path | None:
    """The server's file in the user's cache folder; None if the folder cannot be created."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = cache / "ray-train-platform" / "discovery"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"
