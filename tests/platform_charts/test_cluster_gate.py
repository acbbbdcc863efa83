"""The node gate on a real API server, with the rights of its service account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.names import START_UP_TAINT
from infra.spec.outputs import LABEL_PREFIX
from infra.spec.release import load_release
from infra.spec.settings import load
from platform_charts.images.node_gate.__main__ import Nodes, open_complete
from platform_charts.objects.node_gate import gate_objects
from tests.engines.kubernetes import Cluster

GATE = f"system:serviceaccount:{GPU_NAMESPACE}:node-gate"
COMPLETE = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}


def closed_node(name: str) -> dict[str, Any]:
    taint = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"{LABEL_PREFIX}/group": "h100"}},
        "spec": {"taints": [taint]},
    }


@pytest.fixture
def rights(kubernetes_api: Cluster) -> Iterator[None]:
    """The gate's RBAC objects, without its workload."""
    objects = gate_objects(load("prod"), load_release(), catalog=load_catalog(), registry="registry.example")
    roles = [one for one in objects if one["kind"].startswith("ClusterRole")]
    with kubernetes_api.applied(*roles):
        yield


@pytest.fixture
def gate(control_plane: ControlPlane, rights: None) -> Nodes:
    return Nodes(control_plane.client(GATE))


def look(gate: Nodes) -> list[str]:
    promises = {"h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}
    return open_complete(gate, taint=START_UP_TAINT.key, group_label=f"{LABEL_PREFIX}/group", promises=promises)


def taints(kubernetes_api: Cluster, node: dict[str, Any]) -> list[str]:
    found = kubernetes_api.read(node)
    assert found is not None
    return [one["key"] for one in found["spec"].get("taints", [])]


def test_a_node_is_opened_when_all_devices_are_allocatable(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = closed_node("late")
    with kubernetes_api.applied(node):
        assert look(gate) == ["late: waits for nvidia.com/gpu 0 of 8, vpc.amazonaws.com/efa 0 of 32"]
        assert START_UP_TAINT.key in taints(kubernetes_api, node)
        kubernetes_api.update_status(node, {"allocatable": COMPLETE, "capacity": COMPLETE})
        assert look(gate) == ["late: open"]
        assert START_UP_TAINT.key not in taints(kubernetes_api, node)
        assert look(gate) == []


def test_a_node_that_changed_since_it_was_read_is_not_patched(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = closed_node("busy")
    with kubernetes_api.applied(node):
        (found,) = [one for one in gate.all() if one["metadata"]["name"] == "busy"]
        kubernetes_api.update_status(node, {"allocatable": COMPLETE, "capacity": COMPLETE})
        stale = [{"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}]
        assert not gate.patch("busy", stale)


def test_the_gate_has_no_other_rights(control_plane: ControlPlane, rights: None) -> None:
    nodes = Nodes(control_plane.client(GATE))
    with pytest.raises(ApiException) as refused:
        nodes._core.list_secret_for_all_namespaces()
    assert refused.value.status == 403
