"""Kubernetes objects as plain data, with common labels and security contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.spec.node_labels import LABEL_PREFIX

Manifest = dict[str, Any]
"""One Kubernetes object in the API's own form: apiVersion, kind, metadata and other fields, in camelCase."""

MANAGED_BY = LABEL_PREFIX

PART_OF = "app.kubernetes.io/part-of"
"""Label of every object of the platform's own, with the value `MANAGED_BY`."""

TEAM_LABEL = f"{LABEL_PREFIX}/team"
"""Label of a team's namespace, and of what belongs to a team."""

RESTRICTED_POD: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Pod security context that the Pod Security Standard `restricted` admits."""

RESTRICTED_CONTAINER: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Container security context that the Pod Security Standard `restricted` admits."""

SKIP_AWAIT: Mapping[str, str] = {"pulumi.com/skipAwait": "true"}
"""Annotation of an object whose pods `up` does not wait for; the provider gives a DaemonSet ten minutes to be ready on every
node, and fails the update then (pulumi-kubernetes, provider/pkg/await/daemonset.go)."""


def labels(component: str, *, version: str, team: str | None = None) -> dict[str, str]:
    """The recommended labels of an object (Kubernetes, "Recommended Labels"), and the team it belongs to."""
    found = {
        "app.kubernetes.io/name": component,
        PART_OF: MANAGED_BY,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/version": version,
    }
    return found if team is None else {**found, TEAM_LABEL: team}


def annotated(manifest: Manifest, key: str, value: str) -> Manifest:
    """A copy of the object with an annotation added."""
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
    """An object with metadata; `fields` are its other top-level fields: spec, data, rules and so on."""
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
