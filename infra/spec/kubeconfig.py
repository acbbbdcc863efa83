"""Kubeconfig of a stack's cluster; contains no credentials."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

PROGRAM = "aws"
"""The AWS CLI, version 2, which gets a token for the caller's AWS credentials, valid for 15 minutes."""


def kubeconfig(*, name: str, endpoint: str, authority: str, region: str, via: str = "") -> dict[str, Any]:
    """A kubeconfig with one EKS cluster (EKS user guide, "Create kubeconfig file").

    Args:
        name: name of the cluster.
        endpoint: URL of the API server.
        authority: CA certificate, base64.
        region: AWS region of the cluster.
        via: URL to connect to instead of `endpoint`, e.g. a tunnel's; the certificate must still be the endpoint's.
    """
    cluster = {"server": via or endpoint, "certificate-authority-data": authority}
    if via:
        cluster["tls-server-name"] = urlsplit(endpoint).hostname or ""
    command = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": PROGRAM,
        "args": ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"],
        "interactiveMode": "Never",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"exec": command}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
