"""The node gate on a real API server, with its service account's permissions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import LABEL_PREFIX, START_UP_TAINT
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.images.node_gate.__main__ import Nodes, untaint_ready_nodes
from platform_charts.objects.node_gate import gate_objects
from tests.engines.kubernetes import Cluster

GATE = f"system:serviceaccount:{GPU_NAMESPACE}:node-gate"
ALL_DEVICES = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}


def tainted_node(name: str) -> dict[str, Any]:
    taint = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"{LABEL_PREFIX}/group": "h100"}},
        "spec": {"taints": [taint]},
    }


@pytest.fixture
def rights(kubernetes_api: Cluster) -> Iterator[None]:
    """The gate's ClusterRole and binding."""
    groups = resolve_node_groups(load_environment("prod"), catalog=load_catalog()).gpu
    objects = gate_objects(groups, load_release(), registry="registry.example")
    roles = [one for one in objects if one["kind"].startswith("ClusterRole")]
    with kubernetes_api.applied(*roles):
        yield


@pytest.fixture
def gate(control_plane: ControlPlane, rights: None) -> Nodes:
    return Nodes(control_plane.client(GATE))


def poll(gate: Nodes) -> list[str]:
    expected = {"h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}
    return untaint_ready_nodes(gate, taint=START_UP_TAINT.key, group_label=f"{LABEL_PREFIX}/group", expected=expected)


def taints(kubernetes_api: Cluster, node: dict[str, Any]) -> list[str]:
    found = kubernetes_api.read(node)
    assert found is not None
    return [one["key"] for one in found["spec"].get("taints", [])]


def test_the_taint_is_removed_once_all_devices_are_allocatable(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = tainted_node("late")
    with kubernetes_api.applied(node):
        assert poll(gate) == ["late: waiting for nvidia.com/gpu 0 of 8, vpc.amazonaws.com/efa 0 of 32"]
        assert START_UP_TAINT.key in taints(kubernetes_api, node)
        kubernetes_api.update_status(node, {"allocatable": ALL_DEVICES, "capacity": ALL_DEVICES})
        assert poll(gate) == ["late: taint removed"]
        assert START_UP_TAINT.key not in taints(kubernetes_api, node)
        assert poll(gate) == []


def test_a_patch_of_a_changed_node_fails(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = tainted_node("busy")
    with kubernetes_api.applied(node):
        (found,) = [one for one in gate.list_all() if one["metadata"]["name"] == "busy"]
        kubernetes_api.update_status(node, {"allocatable": ALL_DEVICES, "capacity": ALL_DEVICES})
        stale = [{"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}]
        assert not gate.patch("busy", stale)


def test_the_gate_has_no_other_permissions(control_plane: ControlPlane, rights: None) -> None:
    nodes = Nodes(control_plane.client(GATE))
    with pytest.raises(ApiException) as refused:
        nodes._core.list_secret_for_all_namespaces()
    assert refused.value.status == 403
