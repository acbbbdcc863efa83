"""Why pods wait: the most serious reason is shown."""

from __future__ import annotations

import pytest

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import event, pod, ready_pod, unscheduled_pod, waiting_pod
from training.cluster.waiting import waiting_reason

NO_NODE = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."

CHANGED_CODE = {
    "exitCode": 1,
    "reason": "Error",
    "message": f"error: 1 ConfigMaps of the job: the content has sha256 {'a' * 64}, recorded is {'b' * 64}",
}
"""How the container that unpacks a job's code ends; the kubelet takes the message from its log."""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            waiting_pod("ImagePullBackOff", "Back-off pulling image trainer"),
            "pod digits-head, container ray-head: ImagePullBackOff: Back-off pulling image trainer",
        ),
        (
            waiting_pod("CreateContainerConfigError", 'secret "mlflow-credentials" not found'),
            'pod digits-head, container ray-head: CreateContainerConfigError: secret "mlflow-credentials" not found',
        ),
        (
            waiting_pod("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "pod digits-head, container ray-head: CrashLoopBackOff: exited with code 137 (OOMKilled)",
        ),
        (
            pod(containerStatuses=[{"name": "ray-head", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]),
            "pod digits-head, container ray-head: exited with code 2",
        ),
        (
            pod(initContainerStatuses=[{"name": "init", "state": {"waiting": {"reason": "ErrImagePull"}}}]),
            "pod digits-head, container init: ErrImagePull",
        ),
        (
            pod(initContainerStatuses=[{"name": "code", "state": {"terminated": CHANGED_CODE}}]),
            f"pod digits-head, container code: exited with code 1: {CHANGED_CODE['message']}",
        ),
        (
            pod(
                initContainerStatuses=[
                    {
                        "name": "code",
                        "state": {
                            "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed"}
                        },
                        "lastState": {"terminated": CHANGED_CODE},
                    }
                ],
                containerStatuses=[{"name": "ray-head", "state": {"waiting": {"reason": "PodInitializing"}}}],
            ),
            f"pod digits-head, container code: CrashLoopBackOff: exited with code 1: {CHANGED_CODE['message']}",
        ),
        (unscheduled_pod(NO_NODE), f"pod digits-head: Unschedulable: {NO_NODE}"),
        (waiting_pod("ContainerCreating"), "0 of 1 pods ready"),
        (ready_pod("digits-head"), ""),
    ],
)
def test_a_waiting_pod_has_a_reason(found: Manifest, reason: str) -> None:
    assert waiting_reason([found], []) == reason


def test_a_container_that_cannot_start_comes_before_a_pod_without_a_node() -> None:
    pods = [unscheduled_pod(NO_NODE, name="digits-worker"), waiting_pod("ImagePullBackOff")]
    assert "ImagePullBackOff" in waiting_reason(pods, [])


def test_the_newest_warning_is_shown() -> None:
    events = [
        event("FailedMount", "configmap not found", at="08:00:00"),
        event("FailedToCreateHeadPod", "exceeded quota: gpus", about="digits-abcde", kind="RayCluster", at="08:01:00"),
    ]
    assert waiting_reason([], events) == "raycluster digits-abcde: FailedToCreateHeadPod: exceeded quota: gpus"


@pytest.mark.parametrize(
    ("name", "remedy"), [("digits-code-0", "resume it with CODE=folder"), ("digits-settings", "submit it again")]
)
def test_a_deleted_config_map_is_named_with_what_to_do(name: str, remedy: str) -> None:
    message = f'MountVolume.SetUp failed for volume "x" : configmap "{name}" not found'
    reason = waiting_reason([pod()], [event("FailedMount", message)])
    assert reason.endswith(f'configmap "{name}" not found; it was deleted: stop the job and {remedy}')


def test_normal_events_are_ignored() -> None:
    assert waiting_reason([pod()], [event("Pulled", "image is there", type_="Normal")]) == "0 of 1 pods ready"


def test_a_program_that_does_not_listen_yet_is_no_reason() -> None:
    refused = 'Readiness probe failed: Get "http://10.0.0.9:52365/api/healthz": dial tcp 10.0.0.9:52365: connect: connection refused'
    assert waiting_reason([pod()], [event("Unhealthy", refused)]) == "0 of 1 pods ready"
    failing = "Readiness probe failed: HTTP probe failed with statuscode: 500"
    assert waiting_reason([pod()], [event("Unhealthy", failing)]) == f"pod digits-head: Unhealthy: {failing}"


def test_pods_that_are_deleted_are_not_waited_for() -> None:
    old = waiting_pod("CrashLoopBackOff", "back-off 40s restarting failed")
    old["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert waiting_reason([old, ready_pod("digits-worker")], []) == ""


def test_events_of_a_deleted_pod_are_shown() -> None:
    assert waiting_reason([], [event("FailedScheduling", NO_NODE)]) == f"pod digits-head: FailedScheduling: {NO_NODE}"


def test_a_pod_waits_for_the_node_that_the_autoscaler_adds() -> None:
    events = [event("TriggeredScaleUp", "0->1", type_="Normal"), event("FailedScheduling", NO_NODE)]
    assert waiting_reason([unscheduled_pod(NO_NODE)], events) == "a node is being added for 1 pod"


def test_an_unschedulable_pod_comes_before_one_that_gets_a_new_node() -> None:
    pods = [unscheduled_pod(NO_NODE), unscheduled_pod("too large", name="digits-worker")]
    events = [event("TriggeredScaleUp", "0->1", type_="Normal")]
    assert waiting_reason(pods, events) == "pod digits-worker: Unschedulable: too large"


def test_a_pod_that_kueue_has_not_admitted_is_not_stuck() -> None:
    gated = unscheduled_pod("Scheduling is blocked", name="digits-worker", reason="SchedulingGated")
    assert waiting_reason([ready_pod("digits-head"), gated], []) == "Kueue has yet to admit 1 pod"
    pods = [unscheduled_pod("too large"), gated]
    assert waiting_reason(pods, []) == "pod digits-head: Unschedulable: too large"


def test_starting_pods_are_counted() -> None:
    pods = [ready_pod("digits-head"), waiting_pod("ContainerCreating", name="digits-worker")]
    assert waiting_reason(pods, []) == "1 of 2 pods ready"


def test_a_long_message_is_truncated_to_one_line() -> None:
    reason = waiting_reason([unscheduled_pod("word\n" * 500)], [])
    assert "\n" not in reason
    assert len(reason) < 450
