"""The node gate's policy, and the patches that put it into effect."""

from __future__ import annotations

from typing import Any

from infra.spec.node_labels import DIAGNOSE_LABEL, GROUP_LABEL, START_UP_TAINT, UNHEALTHY_TAINT
from platform_charts.images.node_gate.health import Decision, Diagnosis, NodeFacts, decide
from platform_charts.images.node_gate.objects import Group, Keys, diagnosis_of, facts_of, patch_of

KEYS = Keys(START_UP_TAINT.key, UNHEALTHY_TAINT.key, GROUP_LABEL, DIAGNOSE_LABEL)
DEVICES = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}
ALL = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
PLAIN, DIAGNOSED = Group(devices=DEVICES), Group(devices=DEVICES, is_diagnosed=True)
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
START_UP = {"key": START_UP_TAINT.key, "value": START_UP_TAINT.value, "effect": START_UP_TAINT.effect}
SICK_GPU = ("hardware", "AcceleratedHardwareReady: NvidiaXID79Error")
PENDING, PASSED, FAILED = Diagnosis("pending"), Diagnosis("passed"), Diagnosis("failed", "exit status 226")


def unhealthy(value: str) -> dict[str, str]:
    return {"key": UNHEALTHY_TAINT.key, "value": value, "effect": "NoSchedule"}


DECISIONS: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        # Starting: it waits for devices and for the diagnostics, in parallel.
        ({"is_starting": True, "missing": ("gpu",)}, ("starting", None, ("gpu",), False)),
        ({"is_starting": True}, ("healthy", None, (), False)),
        ({"is_starting": True, "diagnosis": PENDING}, ("starting", None, ("diagnostics",), True)),
        ({"is_starting": True, "missing": ("efa",), "diagnosis": PENDING}, ("starting", None, ("efa", "diagnostics"), True)),
        # The pod that has passed stays until the node takes jobs; without the label its outcome would be forgotten.
        ({"is_starting": True, "missing": ("efa",), "diagnosis": PASSED}, ("starting", None, ("efa",), True)),
        ({"is_starting": True, "diagnosis": PASSED}, ("healthy", None, (), False)),
        ({"is_starting": True, "diagnosis": FAILED}, ("unhealthy", "diagnostics", ("exit status 226",), True)),
        ({"is_starting": True, "failed_conditions": (SICK_GPU,)}, ("unhealthy", "hardware", (SICK_GPU[1],), False)),
        # In service.
        ({"is_starting": False}, ("healthy", None, (), False)),
        ({"is_starting": False, "missing": ("gpu 7 of 8",)}, ("unhealthy", "devices", ("gpu 7 of 8",), False)),
        ({"is_starting": False, "failed_conditions": (SICK_GPU,)}, ("unhealthy", "hardware", (SICK_GPU[1],), False)),
        ({"is_starting": False, "diagnosis": FAILED}, ("unhealthy", "diagnostics", ("exit status 226",), True)),
        ({"is_starting": False, "diagnosis": PENDING}, ("unhealthy", "diagnostics", ("not passed yet",), True)),
        ({"is_starting": False, "diagnosis": PASSED}, ("healthy", None, (), False)),
        (
            {"is_starting": False, "missing": ("gpu",), "failed_conditions": (SICK_GPU, ("network", "no route"))},
            ("unhealthy", "hardware", (SICK_GPU[1], "no route", "gpu"), False),
        ),
]  # fmt: skip


def test_decisions() -> None:
    for facts, expected in DECISIONS:
        decided = decide(NodeFacts(**facts))
        found = (decided.state, decided.reason, decided.details, decided.needs_diagnostics)
        assert found == expected, facts


def node(
    *taints: dict[str, str],
    allocatable: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **conditions: str,
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "node",
            "labels": {GROUP_LABEL: "h100", **(labels or {})},
            "resourceVersion": "7",
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {"taints": [GPU, *taints]},
        "status": {
            "allocatable": {"cpu": "191450m", **(ALL if allocatable is None else allocatable)},
            "conditions": [{"type": kind, "status": status, "reason": "R"} for kind, status in conditions.items()],
        },
    }


def test_missing_devices_are_counted_by_resource_and_more_gpus_than_expected_are_fine() -> None:
    for allocatable, missing in (
        ({}, ("nvidia.com/gpu 0 of 8", "vpc.amazonaws.com/efa 0 of 32")),
        ({**ALL, "nvidia.com/gpu": "7"}, ("nvidia.com/gpu 7 of 8",)),
        ({**ALL, "nvidia.com/gpu": "32"}, ()),
    ):
        assert facts_of(node(allocatable=allocatable), PLAIN, KEYS, None).missing == missing


def test_only_false_conditions_of_the_hardware_and_the_network_count() -> None:
    found = node(AcceleratedHardwareReady="False", NetworkingReady="Unknown", KernelReady="False", Ready="False")
    assert facts_of(found, PLAIN, KEYS, None).failed_conditions == (("hardware", "AcceleratedHardwareReady: R"),)


def test_a_node_in_service_is_not_diagnosed() -> None:
    labelled = node(labels={DIAGNOSE_LABEL: "true"})
    cases: list[tuple[dict[str, Any], Group, Diagnosis | None, Diagnosis | None]] = [
        (node(START_UP), DIAGNOSED, None, PENDING),
        (node(START_UP), DIAGNOSED, PASSED, PASSED),
        (node(START_UP), PLAIN, None, None),
        (node(), DIAGNOSED, None, None),
        (labelled, DIAGNOSED, None, PENDING),
        (labelled, PLAIN, FAILED, None),
    ]
    for found, group, diagnosis, expected in cases:
        assert facts_of(found, group, KEYS, diagnosis).diagnosis == expected


def test_the_outcome_is_the_exit_status_of_the_init_container() -> None:
    def ended(code: int, message: str = "") -> dict[str, Any]:
        return {"terminated": {"exitCode": code, "message": message}}

    cases: list[tuple[dict[str, Any], Diagnosis]] = [
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, PENDING),
        ({"state": {"running": {}}}, PENDING),
        ({"state": ended(0)}, PASSED),
        ({"state": ended(226, "GPU 3: ECC\n")}, Diagnosis("failed", "exit status 226: GPU 3: ECC")),
        ({"state": {"running": {}}, "lastState": ended(226)}, FAILED),
        ({"state": {"waiting": {}}, "lastState": ended(226)}, FAILED),
        ({"state": ended(0), "lastState": ended(226)}, PASSED),
    ]
    assert diagnosis_of({"status": {}}) == PENDING
    for status, expected in cases:
        assert diagnosis_of({"status": {"initContainerStatuses": [status]}}) == expected, status


def changes(found: dict[str, Any], decision: Decision) -> dict[str, Any]:
    """The changed parts of the node; checks that the patch tests the resource version first."""
    patch = patch_of(found, decision, KEYS)
    if patch:
        assert patch[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    return {one["path"]: one["value"] for one in patch[1:]}


SICK = Decision(state="unhealthy", reason="hardware", details=("GPU 3 fell off the bus",))
HEALTHY = Decision(state="healthy")


def test_a_sick_node_gets_the_taint_and_the_reason() -> None:
    annotations = {UNHEALTHY_TAINT.key: "GPU 3 fell off the bus"}
    assert changes(node(), SICK) == {"/spec/taints": [GPU, unhealthy("hardware")], "/metadata/annotations": annotations}
    # A new one no longer counts as starting, and a changed reason replaces the taint.
    for taint in (START_UP, unhealthy("devices")):
        assert changes(node(taint), SICK)["/spec/taints"] == [GPU, unhealthy("hardware")]
    as_decided = node(unhealthy("hardware"), annotations=annotations)
    assert patch_of(as_decided, SICK, KEYS) == patch_of(node(), HEALTHY, KEYS) == []


def test_a_healthy_node_loses_the_taints_the_label_and_the_annotation() -> None:
    found = node(START_UP, labels={DIAGNOSE_LABEL: "true"}, annotations={UNHEALTHY_TAINT.key: "x", "other": "y"})
    assert changes(found, HEALTHY) == {
        "/spec/taints": [GPU],
        "/metadata/labels": {GROUP_LABEL: "h100"},
        "/metadata/annotations": {"other": "y"},
    }
    assert changes(node(unhealthy("diagnostics")), HEALTHY) == {"/spec/taints": [GPU]}


def test_a_persons_taint_stays() -> None:
    assert changes(node(unhealthy("manual")), HEALTHY) == {}
    assert "/spec/taints" not in changes(node(unhealthy("manual")), SICK)


def test_a_starting_node_is_labelled_for_the_diagnostics_and_keeps_its_taints() -> None:
    decision = Decision(state="starting", details=("diagnostics",), needs_diagnostics=True)
    assert changes(node(START_UP), decision) == {"/metadata/labels": {GROUP_LABEL: "h100", DIAGNOSE_LABEL: "true"}}
