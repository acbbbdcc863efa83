"""Why pods wait: the most serious reason is shown."""

from __future__ import annotations

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


def container(name: str = "ray-head", kind: str = "containerStatuses", **states: Manifest) -> Manifest:
    """A pod with a container in a state."""
    last = {"lastState": {"terminated": states.pop("before")}} if "before" in states else {}
    return pod(**{kind: [{"name": name, "state": states, **last}]})


def test_a_waiting_pod_has_a_reason() -> None:
    init, head = "initContainerStatuses", "pod digits-head, container ray-head: "
    secret = 'secret "mlflow-credentials" not found'
    again = {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed"}
    code = f"exited with code 1: {CHANGED_CODE['message']}"
    restarted = container("code", init, waiting=again, before=CHANGED_CODE)
    restarted["status"] |= container(waiting={"reason": "PodInitializing"})["status"]
    oom = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    for found, reason in (
        (waiting_pod("ImagePullBackOff", "Back-off"), f"{head}ImagePullBackOff: Back-off"),
        (waiting_pod("CreateContainerConfigError", secret), f"{head}CreateContainerConfigError: {secret}"),
        (waiting_pod("CrashLoopBackOff", lastState=oom), f"{head}CrashLoopBackOff: exited with code 137 (OOMKilled)"),
        (container(terminated={"exitCode": 2, "reason": "Error"}), f"{head}exited with code 2"),
        (container("init", init, waiting={"reason": "ErrImagePull"}), "pod digits-head, container init: ErrImagePull"),
        (container("code", init, terminated=CHANGED_CODE), f"pod digits-head, container code: {code}"),
        (restarted, f"pod digits-head, container code: CrashLoopBackOff: {code}"),
        (unscheduled_pod(NO_NODE), f"pod digits-head: Unschedulable: {NO_NODE}"),
        (waiting_pod("ContainerCreating"), "0 of 1 pods ready"),
        (ready_pod("digits-head"), ""),
    ):
        assert waiting_reason([found], []) == reason


def test_the_most_serious_reason_comes_first() -> None:
    pods = [unscheduled_pod(NO_NODE, name="digits-worker"), waiting_pod("ImagePullBackOff")]
    assert "ImagePullBackOff" in waiting_reason(pods, [])
    scale_up = event("TriggeredScaleUp", "0->1", type_="Normal")
    events = [scale_up, event("FailedScheduling", NO_NODE)]
    assert waiting_reason([unscheduled_pod(NO_NODE)], events) == "a node is being added for 1 pod"
    pods = [unscheduled_pod(NO_NODE), unscheduled_pod("too large", name="digits-worker")]
    assert waiting_reason(pods, [scale_up]) == "pod digits-worker: Unschedulable: too large"
    gated = unscheduled_pod("Scheduling is blocked", name="digits-worker", reason="SchedulingGated")
    assert waiting_reason([ready_pod("digits-head"), gated], []) == "Kueue has yet to admit 1 pod"
    assert waiting_reason([unscheduled_pod("too large"), gated], []) == "pod digits-head: Unschedulable: too large"
    starting = [ready_pod("digits-head"), waiting_pod("ContainerCreating", name="digits-worker")]
    assert waiting_reason(starting, []) == "1 of 2 pods ready"


def test_the_newest_warning_is_shown() -> None:
    events = [
        event("FailedMount", "configmap not found", at="08:00:00"),
        event("FailedToCreateHeadPod", "exceeded quota: gpus", about="digits-abcde", kind="RayCluster", at="08:01:00"),
    ]
    assert waiting_reason([], events) == "raycluster digits-abcde: FailedToCreateHeadPod: exceeded quota: gpus"
    assert waiting_reason([], [event("FailedScheduling", NO_NODE)]) == f"pod digits-head: FailedScheduling: {NO_NODE}"


def test_a_deleted_config_map_is_named_with_what_to_do() -> None:
    for name, remedy in (("digits-code-0", "resume it with CODE=folder"), ("digits-settings", "submit it again")):
        message = f'MountVolume.SetUp failed for volume "x" : configmap "{name}" not found'
        reason = waiting_reason([pod()], [event("FailedMount", message)])
        assert reason.endswith(f'configmap "{name}" not found; it was deleted: stop the job and {remedy}')


def test_events_that_are_normal_pass_or_are_of_deleted_pods_are_no_reason() -> None:
    assert waiting_reason([pod()], [event("Pulled", "image is there", type_="Normal")]) == "0 of 1 pods ready"
    refused = 'Readiness probe failed: Get "http://10.0.0.9:52365/api/healthz": dial tcp 10.0.0.9:52365: connect: connection refused'
    assert waiting_reason([pod()], [event("Unhealthy", refused)]) == "0 of 1 pods ready"
    failing = "Readiness probe failed: HTTP probe failed with statuscode: 500"
    assert waiting_reason([pod()], [event("Unhealthy", failing)]) == f"pod digits-head: Unhealthy: {failing}"
    old = waiting_pod("CrashLoopBackOff", "back-off 40s restarting failed")
    old["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert waiting_reason([old, ready_pod("digits-worker")], []) == ""


def test_a_long_message_is_truncated_to_one_line() -> None:
    reason = waiting_reason([unscheduled_pod("word\n" * 500)], [])
    assert "\n" not in reason
    assert len(reason) < 450
