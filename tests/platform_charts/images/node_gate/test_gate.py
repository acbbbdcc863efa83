"""The node gate: readiness of nodes, and the patch that removes the taint."""

from __future__ import annotations

from typing import Any

from infra.spec.catalog import load_catalog
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import LABEL_PREFIX, START_UP_TAINT
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.images.node_gate.gate import tainted_nodes, untaint_patch
from platform_charts.objects.node_gate import gate_objects

GROUP_LABEL = f"{LABEL_PREFIX}/group"
EXPECTED = {"h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
START_UP = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}


def node(*, allocatable: dict[str, str], group: str = "h100", is_tainted: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": "node", "labels": {GROUP_LABEL: group}, "resourceVersion": "7"},
        "spec": {"taints": [GPU_TAINT, START_UP] if is_tainted else [GPU_TAINT]},
        "status": {"allocatable": {"cpu": "191450m", **allocatable}},
    }


def missing(found: dict[str, Any]) -> list[tuple[str, ...]]:
    tainted = tainted_nodes([found], taint=START_UP_TAINT.key, group_label=GROUP_LABEL, expected=EXPECTED)
    return [one.missing for one in tainted]


def test_a_node_without_devices_is_missing_both_kinds() -> None:
    assert missing(node(allocatable={})) == [("nvidia.com/gpu 0 of 8", "vpc.amazonaws.com/efa 0 of 32")]


def test_a_node_without_efa_devices_is_not_ready() -> None:
    assert missing(node(allocatable={"nvidia.com/gpu": "8"})) == [("vpc.amazonaws.com/efa 0 of 32",)]


def test_a_node_with_too_few_gpus_is_not_ready() -> None:
    allocatable = {"nvidia.com/gpu": "7", "vpc.amazonaws.com/efa": "32"}
    assert missing(node(allocatable=allocatable)) == [("nvidia.com/gpu 7 of 8",)]


def test_a_node_with_all_devices_is_ready() -> None:
    assert missing(node(allocatable={"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"})) == [()]


def test_a_node_may_have_more_gpus_than_expected() -> None:
    assert missing(node(allocatable={"nvidia.com/gpu": "32", "vpc.amazonaws.com/efa": "32"})) == [()]


def test_a_node_without_the_taint_is_ignored() -> None:
    assert missing(node(allocatable={}, is_tainted=False)) == []


def test_the_patch_removes_only_the_taint_and_tests_the_resource_version() -> None:
    assert untaint_patch(node(allocatable={}), taint=START_UP_TAINT.key) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/taints", "value": [GPU_TAINT]},
    ]


def test_expected_devices_of_prod_follow_the_catalogue() -> None:
    groups = resolve_node_groups(load_environment("prod"), catalog=load_catalog()).gpu
    assert {group.name: group.expected_devices for group in groups} == {
        "l4": {"nvidia.com/gpu": 4},
        "a100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4},
        "h100": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32},
    }


def test_without_gpu_groups_there_is_no_gate() -> None:
    assert gate_objects((), load_release(), registry="registry.example") == ()
