"""Kubernetes objects as plain data, and the few things every one of ours has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.spec.node_labels import LABEL_PREFIX

Manifest = dict[str, Any]
"""One Kubernetes object as the API server takes it: apiVersion, kind, metadata and the rest, in camelCase."""

MANAGED_BY = LABEL_PREFIX

RESTRICTED_POD: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Pod security context under which the profile `restricted` of the Pod Security Standards admits a pod."""

RESTRICTED_CONTAINER: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The same for each of its containers."""


def labels(component: str, *, version: str, team: str | None = None) -> dict[str, str]:
    """The recommended labels of an object (Kubernetes, "Recommended Labels"), and the team it belongs to."""
    found = {
        "app.kubernetes.io/name": component,
        "app.kubernetes.io/part-of": MANAGED_BY,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/version": version,
    }
    return found if team is None else {**found, f"{LABEL_PREFIX}/team": team}


def annotated(manifest: Manifest, key: str, value: str) -> Manifest:
    """The same object with one more annotation."""
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), key: value}}}


def api_object(
    api_version: str,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: object,
) -> Manifest:
    """An object with its metadata; `fields` are what stands beside it: spec, data, rules and the like."""
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
