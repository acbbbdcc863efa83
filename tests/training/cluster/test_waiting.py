"""Why pods wait: the most serious reason is shown, and what the nodes of the group of an unscheduled pod offer."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import event, pod, ready_pod, unscheduled_pod, waiting_pod
from tests.training.cluster.team_cluster import target
from training.cluster.node_room import explain_unscheduled, room_by_group
from training.cluster.waiting import waiting_reason

NO_NODE = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."

CHANGED_CODE = {
    "exitCode": 1,
    "reason": "Error",
    "message": f"error: 1 ConfigMaps of the job: the content has sha256 {'a' * 64}, recorded is {'b' * 64}",
}
"""How the container that unpacks a job's code ends; the kubelet takes the message from its log."""


def container(name: str = "ray-head", kind: str = "containerStatuses", **states: Manifest) -> Manifest:
    last = {"lastState": {"terminated": states.pop("before")}} if "before" in states else {}
    made = pod()
    made["status"][kind] = [{"name": name, "state": states, **last}]
    return made


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


FULL = "1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)"
EVICTIONS = (
    "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
MESSAGE = f"0/3 nodes are available: {FULL}. {EVICTIONS}"

CPU_POD = "it asks for 2 CPUs, 7 GiB of memory on a node of group heads, of which an empty one (m7i.xlarge) has "


def asking(**requests: str) -> Manifest:
    return {"resources": {"requests": requests}}


def unplaced(
    *containers: Manifest, group: str = "heads", message: str = MESSAGE, init: tuple[Manifest, ...] = ()
) -> Manifest:
    """A pod of a group that the scheduler cannot place."""
    found = unscheduled_pod(message)
    selector = {"ray-train-platform/group": group}
    return {**found, "spec": {"nodeSelector": selector, "containers": [*containers], "initContainers": [*init]}}


def reason(found: Manifest, **outputs: object) -> str:
    return waiting_reason([found], [], room_by_group(target(**outputs)))


def test_a_pod_without_a_node_is_told_its_group_its_requests_the_nodes_and_what_to_do() -> None:
    assert reason(unplaced(asking(cpu="2", memory="7Gi"))) == (
        f"pod digits-head: Unschedulable: 0/3 nodes are available: {FULL}; {CPU_POD}3 CPUs, 12 GiB of memory for jobs; "
        "1 of at most 4 is ready; use fewer workers, raise head_nodes.max_size in infra/environments/dev.yaml, or wait for "
        "the autoscaler or until other pods end"
    )


def test_a_full_group_gets_no_nodes_from_the_autoscaler() -> None:
    message = "0/9 nodes are available: 2 Insufficient nvidia.com/gpu, 7 node(s) had untolerated taint(s)."
    found = reason(unplaced(asking(cpu="44", memory="150Gi", **{"nvidia.com/gpu": "4"}), group="a10g", message=message))
    assert "it asks for 44 CPUs, 150 GiB of memory, 4 GPUs on a node of group a10g" in found
    assert "(g5.12xlarge) has 44 CPUs, 156 GiB of memory, 4 GPUs for jobs; 2 of at most 2 are ready" in found
    assert found.endswith(
        "raise max_size of GPU group a10g in infra/environments/dev.yaml, or wait until other pods end"
    )


def test_a_pod_that_is_larger_than_a_node_must_ask_for_less() -> None:
    for requests in ({"cpu": "3500m"}, {"memory": "13Gi"}, {"nvidia.com/gpu": "1"}):
        found = reason(unplaced(asking(**requests)))
        assert found.endswith("3 CPUs, 12 GiB of memory for jobs; ask for less, or use larger nodes"), requests


def test_a_pod_asks_for_its_containers_or_for_what_one_of_its_init_containers_needs() -> None:
    sidecar = {**asking(cpu="500m"), "restartPolicy": "Always"}
    cases: list[tuple[tuple[Manifest, ...], str]] = [
        ((), "1.5"),
        ((asking(cpu="2"),), "2"),
        ((sidecar,), "2"),
        ((sidecar, asking(cpu="2")), "2.5"),
        ((asking(cpu="1"), {**asking(cpu="1"), "restartPolicy": "Always"}), "2.5"),
    ]
    for init, cpus in cases:
        found = reason(unplaced(asking(cpu="1"), asking(cpu="500m"), init=init))
        assert f"it asks for {cpus} CPUs, 0 GiB of memory" in found


def test_what_the_stack_or_the_scheduler_does_not_say_is_left_out() -> None:
    for group in ("", "another"):
        assert explain_unscheduled(unplaced(asking(), group=group), MESSAGE, room_by_group(target())) == ""
        assert EVICTIONS in reason(unplaced(asking(), group=group))
    unlimited = reason(unplaced(asking(cpu="2", memory="7Gi")), head_max_nodes=None)
    assert "for jobs; 1 is ready; use fewer" in unlimited
    other_words = reason(unplaced(asking(cpu="2", memory="7Gi"), message="no nodes available to schedule pods"))
    assert "for jobs; use fewer" in other_words
    assert "heads" not in room_by_group(target(head_instance_type=None))
    assert room_by_group(target())["t4"].gpus == 4, "shared GPUs count as often as they are advertised"
