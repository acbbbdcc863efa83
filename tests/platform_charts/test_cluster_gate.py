"""The node gate on a real API server, with its service account's permissions; the nodes are objects without machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import DIAGNOSE_LABEL, GROUP_LABEL, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.images.node_gate.__main__ import Nodes, check_nodes
from platform_charts.images.node_gate.objects import Group, Keys
from platform_charts.objects.gpu_diagnostics import DIAGNOSTICS
from platform_charts.objects.node_gate import gate_objects
from tests.engines.kubernetes import Cluster

GATE = f"system:serviceaccount:{GPU_NAMESPACE}:node-gate"
KEYS = Keys(START_UP_TAINT.key, UNHEALTHY_TAINT.key, GROUP_LABEL, DIAGNOSE_LABEL)
DEVICES = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}
ALL_DEVICES = {resource: str(count) for resource, count in DEVICES.items()}
XID = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error", "message": "GPU 3 fell off"}


def tainted_node(name: str) -> dict[str, Any]:
    taint = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {GROUP_LABEL: "h100"}},
        "spec": {"taints": [taint]},
    }


@pytest.fixture(scope="module")
def rights(kubernetes_api: Cluster) -> Iterator[None]:
    """The gate's roles and bindings, with diagnostics."""
    groups = resolve_node_groups(load_environment("prod"), catalog=load_catalog()).gpu
    objects = gate_objects(groups, load_release(), registry="registry.example", diagnostics="quick")
    roles = [one for one in objects if "Role" in one["kind"]]
    with kubernetes_api.namespace(GPU_NAMESPACE), kubernetes_api.applied(*roles):
        yield


@pytest.fixture
def gate(control_plane: ControlPlane, rights: None) -> Nodes:
    return Nodes(control_plane.client(GATE), diagnostics=(GPU_NAMESPACE, DIAGNOSTICS))


def poll(gate: Nodes, *, is_diagnosed: bool = False) -> list[str]:
    """The log lines of a poll; repeated where the node lifecycle controller has changed a node meanwhile."""
    groups = {"h100": Group(devices=DEVICES, is_diagnosed=is_diagnosed)}
    while True:
        lines = check_nodes(gate, keys=KEYS, groups=groups)
        if not any("has changed meanwhile" in line for line in lines):
            return lines


def taints(kubernetes_api: Cluster, node: Manifest) -> dict[str, str]:
    found = kubernetes_api.read(node)
    assert found is not None
    return {one["key"]: one.get("value", "") for one in found["spec"].get("taints", [])}


def diagnostics_pod(kubernetes_api: Cluster, node: Manifest, *, exit_code: int) -> Manifest:
    """A pod of the diagnostics as the DaemonSet controller and the kubelet leave it."""
    spec = {
        "nodeName": node["metadata"]["name"],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "initContainers": [{"name": "diagnose", "image": "dcgm"}],
        "containers": [{"name": "passed", "image": "dcgm"}],
    }
    labels = {"app.kubernetes.io/name": DIAGNOSTICS}
    pod = api_object("v1", "Pod", "gpu-diagnostics-1", namespace=GPU_NAMESPACE, labels=labels, spec=spec)
    if kubernetes_api.read(pod) is None:
        kubernetes_api.create(pod)
    ended = {"terminated": {"exitCode": exit_code, "message": "GPU 3: ECC"}}
    status = {"name": "diagnose", "image": "dcgm", "imageID": "", "ready": exit_code == 0, "restartCount": 0}
    kubernetes_api.update_status(pod, {"initContainerStatuses": [{**status, "state": ended}]})
    return pod


def test_a_node_is_tainted_until_all_devices_are_allocatable_and_again_while_it_is_sick(
    kubernetes_api: Cluster, gate: Nodes
) -> None:
    node = tainted_node("late")
    healthy = {"allocatable": ALL_DEVICES, "capacity": ALL_DEVICES, "conditions": [{**XID, "status": "True"}]}
    lost = {**ALL_DEVICES, "vpc.amazonaws.com/efa": "31"}
    with kubernetes_api.applied(node):
        assert poll(gate) == ["late: waiting for nvidia.com/gpu 0 of 8, vpc.amazonaws.com/efa 0 of 32"]
        assert START_UP_TAINT.key in taints(kubernetes_api, node)
        kubernetes_api.update_status(node, healthy)
        assert poll(gate) == ["late: taint removed"]
        assert START_UP_TAINT.key not in taints(kubernetes_api, node)
        assert poll(gate) == []
        kubernetes_api.update_status(node, {**healthy, "conditions": [XID]})
        said = "late: unhealthy (hardware): AcceleratedHardwareReady: NvidiaXID79Error GPU 3 fell off"
        assert poll(gate) == poll(gate) == [said]
        assert taints(kubernetes_api, node)[UNHEALTHY_TAINT.key] == "hardware"
        found = kubernetes_api.read(node)
        assert found is not None
        assert "GPU 3 fell off" in found["metadata"]["annotations"][UNHEALTHY_TAINT.key]
        kubernetes_api.update_status(node, {**healthy, "allocatable": lost})
        assert poll(gate) == ["late: unhealthy (devices): vpc.amazonaws.com/efa 31 of 32"]
        kubernetes_api.update_status(node, healthy)
        assert poll(gate) == ["late: taint removed"]
        assert UNHEALTHY_TAINT.key not in taints(kubernetes_api, node)


def test_a_node_is_diagnosed_before_its_first_job_and_never_in_service(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = tainted_node("new")
    with kubernetes_api.applied(node):
        kubernetes_api.update_status(node, {"allocatable": ALL_DEVICES, "capacity": ALL_DEVICES})
        assert poll(gate, is_diagnosed=True) == ["new: waiting for diagnostics"]
        assert _label(kubernetes_api, node) == "true"
        pod = diagnostics_pod(kubernetes_api, node, exit_code=226)
        try:
            assert poll(gate, is_diagnosed=True) == ["new: unhealthy (diagnostics): exit status 226: GPU 3: ECC"]
            found = taints(kubernetes_api, node)
            assert found == {**found, UNHEALTHY_TAINT.key: "diagnostics"}
            assert START_UP_TAINT.key not in found
            assert _label(kubernetes_api, node) == "true"
            diagnostics_pod(kubernetes_api, node, exit_code=0)
            assert poll(gate, is_diagnosed=True) == ["new: taint removed"]
            assert _label(kubernetes_api, node) is None
        finally:
            kubernetes_api.delete_all([pod])
        assert poll(gate, is_diagnosed=True) == []


def _label(kubernetes_api: Cluster, node: Manifest) -> str | None:
    label: str | None = (kubernetes_api.read(node) or {})["metadata"]["labels"].get(DIAGNOSE_LABEL)
    return label


def test_a_patch_of_a_changed_node_fails(kubernetes_api: Cluster, gate: Nodes) -> None:
    node = tainted_node("busy")
    with kubernetes_api.applied(node):
        (found,) = [one for one in gate.list_all() if one["metadata"]["name"] == "busy"]
        kubernetes_api.update_status(node, {"allocatable": ALL_DEVICES, "capacity": ALL_DEVICES})
        stale = [{"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}]
        assert not gate.patch("busy", stale)


def test_the_gate_has_no_other_permissions(control_plane: ControlPlane, rights: None) -> None:
    core = Nodes(control_plane.client(GATE))._core
    for forbidden in (
        core.list_secret_for_all_namespaces,
        core.list_pod_for_all_namespaces,
        lambda: core.list_namespaced_secret(GPU_NAMESPACE),
        lambda: core.delete_node("late"),
        lambda: core.delete_namespaced_pod("x", GPU_NAMESPACE),
        lambda: core.create_namespaced_pod(GPU_NAMESPACE, {"metadata": {"name": "x"}}),
    ):
        with pytest.raises(ApiException) as refused:
            forbidden()
        assert refused.value.status == 403
