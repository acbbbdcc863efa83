"""Kubeconfig of a stack's cluster; contains no credentials."""

from __future__ import annotations

from typing import Any

PROGRAM = "aws"
"""The AWS CLI, version 2, which gets a token for the caller's AWS credentials, valid for 15 minutes."""


def kubeconfig(*, name: str, endpoint: str, authority: str, region: str) -> dict[str, Any]:
    """A kubeconfig with one EKS cluster (EKS user guide, "Create kubeconfig file").

    Args:
        name: name of the cluster.
        endpoint: URL of the API server.
        authority: CA certificate, base64.
        region: AWS region of the cluster.
    """
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
        "clusters": [{"name": name, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"exec": command}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
