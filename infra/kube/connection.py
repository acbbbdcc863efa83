"""Connections to API servers: by a kubeconfig, or to a stack's cluster with the token that the AWS CLI gives."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes import client, config

from infra.kube.api import KubernetesApi
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.kubeconfig import PROGRAM, kubeconfig
from infra.spec.outputs import ClusterOutput


def connect_with(file: Path) -> KubernetesApi:
    """The cluster of a kubeconfig's current context.

    Raises:
        SettingsError: the file cannot be read, or has no such context.
    """
    try:
        return _connect(lambda settings: config.load_kube_config(str(file), client_configuration=settings))
    except (config.ConfigException, OSError) as error:
        raise SettingsError(f"kubeconfig {file}: {error}", remedy="name another with --kubeconfig FILE") from error


def connect_to(cluster: ClusterOutput, *, region: str) -> KubernetesApi:
    """A stack's EKS cluster, with the AWS credentials of this environment; ~/.kube/config plays no part.

    Raises:
        RefusedError: there is no `aws` to get a token with.
    """
    if shutil.which(PROGRAM) is None:
        raise RefusedError(
            f"no `{PROGRAM}` on PATH, which gives the token for cluster {cluster.name}",
            remedy="install the AWS CLI, version 2; commands on jobs also take a kubeconfig: --kubeconfig FILE",
        )
    document = kubeconfig(
        name=cluster.name, endpoint=cluster.endpoint, authority=cluster.certificate_authority, region=region
    )
    return _connect(lambda settings: config.load_kube_config_from_dict(document, client_configuration=settings))


def _connect(load: Callable[[Any], None]) -> KubernetesApi:
    settings = client.Configuration()
    # One immediate retry, for a kept connection that the server has closed; callers own longer retries.
    settings.retries = 1
    load(settings)
    return KubernetesApi(client.ApiClient(settings), discovery_cache=_discovery_cache(settings.host))


def _discovery_cache(server: str) -> Path | None:
    """A file for each server, in the user's cache; None if that cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = cache / "ray-train-platform" / "discovery"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"
