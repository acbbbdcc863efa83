"""Reads the nodes of the GPU groups and of the head group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.spec.manifest import Manifest
from infra.spec.node_labels import (
    EFA_RESOURCE,
    FAKE_DEVICES_LABEL,
    FAKE_NODE_ANNOTATION,
    GPU_RESOURCE,
    GROUP_LABEL,
    INSTANCE_TYPE_LABEL,
    START_UP_TAINT,
)
from training.cluster.conformance.judges.nodes import NodeFacts

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

DRIVER_LABEL = "nvidia.com/cuda.driver-version.major"
"""Label of GPU feature discovery, which the device plugin's chart runs (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery)."""


def node_facts(api: KubernetesApi) -> tuple[NodeFacts, ...]:
    """All nodes of the platform's groups."""
    now = datetime.now(UTC)
    return tuple(_facts(one, now=now) for one in api.items("v1", "Node", labels=GROUP_LABEL))


def are_fake(nodes: Iterable[NodeFacts], groups: Collection[str]) -> bool:
    """Whether one of the groups has fake nodes only, so that no container of a job starts there."""
    fakes = {group: [one.is_fake for one in nodes if one.group == group] for group in groups}
    return any(found and all(found) for found in fakes.values())


def _facts(node: Manifest, *, now: datetime) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    labels, offered = metadata.get("labels", {}), status.get("allocatable", {})
    taints = {one["key"] for one in (node.get("spec") or {}).get("taints", ())}
    is_fake = metadata.get("annotations", {}).get(FAKE_NODE_ANNOTATION) == "fake"
    return NodeFacts(
        name=metadata["name"],
        group=labels.get(GROUP_LABEL, ""),
        instance_type=labels.get(INSTANCE_TYPE_LABEL, ""),
        gpus=int(offered.get(GPU_RESOURCE, 0)),
        efa=int(offered.get(EFA_RESOURCE, 0)),
        driver=labels.get(DRIVER_LABEL, ""),
        is_starting=START_UP_TAINT.key in taints,
        not_ready=_not_ready(status),
        age_seconds=(now - datetime.fromisoformat(metadata["creationTimestamp"])).total_seconds(),
        is_fake=is_fake,
        has_fake_devices=is_fake or labels.get(FAKE_DEVICES_LABEL) == "true",
    )


def _not_ready(status: Manifest) -> str:
    """Why a node is not ready. One without the condition has a kubelet that has not reported yet."""
    found = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
    if found is None:
        return "its kubelet has not reported"
    return "" if found["status"] == "True" else str(found.get("message") or found.get("reason") or found["status"])
