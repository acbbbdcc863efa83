"""The way to a stack's cluster, as every client of Kubernetes reads it; with no credentials in it."""

from __future__ import annotations

from typing import Any

PROGRAM = "aws"
"""The AWS CLI, version 2: gives the token, for the AWS credentials of whoever calls it and for a quarter of an hour."""


def kubeconfig(*, name: str, endpoint: str, authority: str, region: str) -> dict[str, Any]:
    """A kubeconfig with one cluster (Amazon EKS, "Create kubeconfig file").

    Args:
        name: of the EKS cluster.
        endpoint: URL of its API server.
        authority: its CA certificate, base64.
        region: AWS region it is in.
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
