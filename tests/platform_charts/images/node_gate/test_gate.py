"""The gate opens a node that offers what its group promises, and no other."""

from __future__ import annotations

from typing import Any

from infra.spec.catalog import load_catalog
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import LABEL_PREFIX, START_UP_TAINT
from infra.spec.release import load_release
from infra.spec.settings import load
from platform_charts.images.node_gate.gate import closed_nodes, opening
from platform_charts.objects.node_gate import gate_objects

GROUP_LABEL = f"{LABEL_PREFIX}/group"
PROMISED = {"h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
CLOSED = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}


def node(*, offers: dict[str, str], group: str = "h100", is_closed: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": "node", "labels": {GROUP_LABEL: group}, "resourceVersion": "7"},
        "spec": {"taints": [GPU_TAINT, CLOSED] if is_closed else [GPU_TAINT]},
        "status": {"allocatable": {"cpu": "191450m", **offers}},
    }


def missing(found: dict[str, Any]) -> list[tuple[str, ...]]:
    closed = closed_nodes([found], taint=START_UP_TAINT.key, group_label=GROUP_LABEL, promises=PROMISED)
    return [one.missing for one in closed]


def test_a_node_without_devices_waits_for_both_kinds() -> None:
    assert missing(node(offers={})) == [("nvidia.com/gpu 0 of 8", "vpc.amazonaws.com/efa 0 of 32")]


def test_a_node_whose_efa_is_late_stays_closed() -> None:
    assert missing(node(offers={"nvidia.com/gpu": "8"})) == [("vpc.amazonaws.com/efa 0 of 32",)]


def test_a_node_that_lost_a_gpu_stays_closed() -> None:
    offers = {"nvidia.com/gpu": "7", "vpc.amazonaws.com/efa": "32"}
    assert missing(node(offers=offers)) == [("nvidia.com/gpu 7 of 8",)]


def test_a_complete_node_lacks_nothing() -> None:
    assert missing(node(offers={"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"})) == [()]


def test_slices_of_gpus_are_no_reason_to_wait() -> None:
    assert missing(node(offers={"nvidia.com/gpu": "32", "vpc.amazonaws.com/efa": "32"})) == [()]


def test_an_open_node_is_left_alone() -> None:
    assert missing(node(offers={}, is_closed=False)) == []


def test_opening_takes_the_one_taint_and_fails_on_a_node_that_has_changed() -> None:
    assert opening(node(offers={}), taint=START_UP_TAINT.key) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/taints", "value": [GPU_TAINT]},
    ]


def test_the_devices_expected_of_prods_nodes_are_those_of_the_catalogue() -> None:
    groups = resolve_node_groups(load("prod"), catalog=load_catalog()).gpu
    assert {group.name: group.expected_devices for group in groups} == {
        "l4": {"nvidia.com/gpu": 4},
        "a100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4},
        "h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32},
    }


def test_there_is_no_gate_without_gpus() -> None:
    assert gate_objects((), load_release(), registry="registry.example") == ()
