"""Fake nodes: Node objects as the cluster of an environment would have them, for the scheduler to place pods on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from infra.spec.catalog import Catalog
from infra.spec.node_group import NodeGroup, resolve_node_groups
from infra.spec.node_labels import FAKE_NODE_ANNOTATION
from infra.spec.settings.stack import StackSettings


def fake_nodes(settings: StackSettings, *, catalog: Catalog, real: Collection[str] = ()) -> tuple[dict[str, Any], ...]:
    """Every node an environment may have: the system group and all GPU groups at their largest size.

    A group with a real node has no fake ones: pods of one job or service on both kinds would wait for each other forever.

    A node offers its whole GPUs even where the settings share them, as in `infra.spec.outputs.GpuGroupOutput`.

    Args:
        settings: the environment.
        catalog: the instance types.
        real: names of nodes that are real.

    Raises:
        SettingsError: a group's combination of capacity, placement and EFA is impossible.
    """
    return tuple(
        _node(group, number, region=settings.aws.region)
        for group in resolve_node_groups(settings, catalog=catalog).all()
        if not any(f"{group.name}-{number}" in real for number in range(group.max_size))
        for number in range(group.max_size)
    )


def node_labels(group: NodeGroup, number: int, *, region: str) -> dict[str, str]:
    """The labels of a node as AWS, EKS and the operators set them.

    Args:
        group: its group.
        number: its place in the group, from 0.
        region: AWS region.
    """
    zones = group.plan.availability_zones
    return {
        "kubernetes.io/hostname": f"{group.name}-{number}",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "arm64": "arm64"}[group.instance.architecture],
        "node.kubernetes.io/instance-type": group.instance.name,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zones[number % len(zones)],
        **group.labels,
        **({"nvidia.com/gpu.present": "true"} if group.instance.gpus else {}),
    }


def _node(group: NodeGroup, number: int, *, region: str) -> dict[str, Any]:
    devices = {resource: str(count) for resource, count in group.expected_devices.items()}
    resources = {**group.allocatable, **devices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{group.name}-{number}",
            "annotations": {FAKE_NODE_ANNOTATION: "fake"},
            "labels": node_labels(group, number, region=region),
        },
        "spec": {"taints": [taint.model_dump() for taint in group.taints]},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [],
            "nodeInfo": {"kubeletVersion": "fake"},
        },
    }
