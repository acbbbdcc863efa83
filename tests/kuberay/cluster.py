"""A Ray cluster as KubeRay sees it: its names, and the environment variables that its containers share."""

from __future__ import annotations

from dataclasses import dataclass

from infra.spec.manifest import Manifest

VERSION = "1.6.2"
"""Version of KubeRay whose pods `expand` makes."""

SHELL = ["/bin/bash", "-c", "--"]

_LONGEST_PREFIX = 50


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A RayCluster, or the one that a RayJob becomes.

    Attributes:
        name: its name.
        namespace: its namespace.
        crd: kind of the custom resource it comes from: RayJob or RayCluster.
        spec: its specification.
    """

    name: str
    namespace: str
    crd: str
    spec: Manifest

    @property
    def head_service(self) -> str:
        """Name of the head's service."""
        return f"{self.name}-head-svc"

    @property
    def head_host(self) -> str:
        """DNS name of the head's service, for pods of any namespace."""
        return f"{self.head_service}.{self.namespace}.svc.cluster.local"

    @property
    def gcs_port(self) -> str:
        """Port of Ray's control store."""
        return str(self.spec["headGroupSpec"].get("rayStartParams", {}).get("port", "6379"))


def pod_prefix(name: str, node_type: str) -> str:
    """The generateName of a pod, to which Kubernetes adds five random characters."""
    return f"{name[:_LONGEST_PREFIX]}-{node_type}-"


def label_value(name: str, label: str) -> Manifest:
    """An environment variable with the value of a label of its pod."""
    return field_value(name, f"metadata.labels['{label}']")


def field_value(name: str, path: str) -> Manifest:
    """An environment variable with the value of a field of its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def token_environment(cluster: Cluster) -> list[Manifest]:
    """Environment variables with which a container authenticates to Ray; the Secret has the cluster's name."""
    options = cluster.spec.get("authOptions", {})
    if options.get("mode") != "token":
        return []
    secret = {"name": options.get("secretName", cluster.name[-_LONGEST_PREFIX:]), "key": "auth_token"}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]
