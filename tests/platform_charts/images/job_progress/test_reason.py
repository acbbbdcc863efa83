"""Why a job does not run, in one line."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from platform_charts.images.job_progress.reason import reason_of
from tests.training.cluster.samples import ray_job, workload
from training.cluster.state import Observation, state_of

FULL = "couldn't assign flavors to pod set workers: insufficient quota for nvidia.com/gpu in flavor h100"
OTHERS = "flavor system doesn't match node affinity, {}, untolerated taint {{spot true}} in flavor t4"
NO_TOPOLOGY = 'Flavor "heads" does not support TopologyAwareScheduling'
FEW_NODES = 'topology "network-3-layers" allows to fit only 1 out of 2 pod(s)'
EXCLUDED = '. Total nodes: 6; excluded: resource "nvidia.com/gpu": 5'
NEAR = {"nodeSelector": {GROUP_LABEL: "near"}}
_TERM = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": ["near", "far"]}]}
_REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}
EITHER = {"affinity": {"nodeAffinity": _REQUIRED}}
DEACTIVATED = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
PREEMPTED = "Preempted to accommodate a workload"


def pods(where: Manifest, *, count: int = 2, gpus: int = 4, message: str) -> Manifest:
    """A Workload of worker pods that may run on these nodes, with Kueue's message about them."""
    found = workload(QuotaReserved=f"!to pod set a: {message}")
    requests = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    spec = {"containers": [{"name": "ray", "resources": {"requests": requests}}], **where}
    found["spec"]["podSets"] = [{"name": "head", "count": 1, "template": {}}]
    found["spec"]["podSets"] += [{"name": "a", "count": count, "template": {"spec": spec}}]
    return found


QUEUED: list[tuple[Manifest, str | None]] = [
    (
        pods(NEAR, message=f"{FEW_NODES}{EXCLUDED}, {NO_TOPOLOGY}"),
        f"to pod set a: room for 1 of its 2 pods with 4 GPUs each on the nodes of group near{EXCLUDED}",
    ),
    (
        pods(EITHER, message='topology "x" doesn\'t allow to fit any of 2 pod(s)'),
        "to pod set a: no room yet for its 2 pods with 4 GPUs each on the nodes of groups near, far",
    ),
    (
        pods(NEAR, count=1, gpus=1, message=f"{NO_TOPOLOGY}, flavor x doesn't match node affinity"),
        "to pod set a: no room yet for its pod with 1 GPU on the nodes of group near",
    ),
    (pods({}, gpus=0, message=NO_TOPOLOGY), "to pod set a: no room yet for its 2 pods on the nodes of its group"),
    (workload(QuotaReserved=f"!{FULL}"), FULL),
    (workload(QuotaReserved="!pod set a: " + OTHERS.format("no quota")), "pod set a: no quota"),
    (workload(QuotaReserved="!pod set a: flavor x doesn't match node affinity"), None),
    (
        workload(QuotaReserved=f"!pod set a: {NO_TOPOLOGY}, flavor x doesn't match node affinity"),
        "pod set a: no room yet for its workers on the nodes of its group",
    ),
    (
        workload(QuotaReserved=f"!pod set a: {FEW_NODES}, {NO_TOPOLOGY}"),
        "pod set a: room for 1 of its workers on the nodes of its group",
    ),
    (workload(Evicted=PREEMPTED, QuotaReserved="!pending"), f"{PREEMPTED}; pending"),
    (workload(Evicted=f"!Previously: {PREEMPTED}", QuotaReserved="!pending"), "pending"),
    (workload(Evicted="The workload is deactivated", QuotaReserved="!pending"), "pending"),
    (workload(QuotaReserved="!the\nClusterQueue  is stopped"), "the ClusterQueue is stopped"),
]


def test_a_queued_job_has_the_reason_that_make_jobs_shows() -> None:
    job = ray_job("Suspended", suspend=True)
    for found, expected in QUEUED:
        shown = state_of(Observation(job=job, workload=found)).reason
        text = reason_of(job, found)
        assert text == (expected or shown)
        assert shown.startswith(text)


STATES: list[tuple[Manifest, Manifest | None, str | None]] = [
    (ray_job("Suspended", suspend=True), None, None),
    (ray_job(suspend=True), workload(QuotaReserved="ok", Admitted="ok"), None),
    (ray_job("Suspended", suspend=True), workload(active=False), "stopped"),
    (ray_job("Running", "RUNNING"), workload(active=False), "stopped"),
    (ray_job("Suspended", suspend=True), workload(active=False, Evicted=DEACTIVATED), DEACTIVATED),
    (ray_job("Suspended", suspend=True), workload(active=False, Evicted=f"!Previously: {DEACTIVATED}"), "stopped"),
    (ray_job("Running", "RUNNING"), None, None),
    (ray_job("Running", "PENDING"), workload(QuotaReserved="ok", Admitted="ok"), None),
    (ray_job("Complete", "SUCCEEDED"), workload(active=False), None),
    (ray_job("Complete", "STOPPED"), None, "stopped"),
    (ray_job("Retrying", message="attempt 2"), None, "attempt 2"),
    (ray_job("Failed", reason="DeadlineExceeded"), None, "DeadlineExceeded"),
    (ray_job("Failed", reason="AppFailed", message="exit 1:\nTraceback"), None, "AppFailed: exit 1: Traceback"),
    (ray_job("ValidationFailed", message="no name"), None, "no name"),
]


def test_each_state_has_its_reason() -> None:
    for job, found, expected in STATES:
        assert reason_of(job, found) == expected, expected


EXIT = "Job entrypoint command failed with exit code {}, last available logs (truncated to 20,000 chars):\nerror"


def test_a_failed_driver_has_the_reason_that_make_jobs_shows() -> None:
    for code in (1, 3, 137, -9, 130):
        job = ray_job("Failed", "FAILED", reason="AppFailed", message=EXIT.format(code))
        shown = state_of(Observation(job=job))
        assert reason_of(job, None) == ("stopped" if shown.stage == "stopped" else shown.reason), code


def test_a_starting_job_waits_for_its_head_and_then_for_its_workers() -> None:
    def head(status: str, message: str) -> Manifest:
        return {"conditions": [{"type": "HeadPodReady", "status": status, "message": message}]}

    four: Manifest = {"desiredWorkerReplicas": 4}
    cases: list[tuple[Manifest, str | None]] = [
        ({}, None),
        (four, "0 of 4 workers ready"),
        ({**four, "readyWorkerReplicas": 3}, "3 of 4 workers ready"),
        ({**four, "readyWorkerReplicas": 4}, None),
        ({**four, **head("False", "ray-head: no such image")}, "head not ready: ray-head: no such image"),
        ({**four, **head("True", "ready")}, "0 of 4 workers ready"),
    ]
    for cluster, expected in cases:
        assert reason_of(ray_job("Initializing", rayClusterStatus=cluster), None) == expected, cluster


def test_a_long_reason_is_truncated_and_a_job_that_is_being_deleted_has_none() -> None:
    job = ray_job("Failed", reason="AppFailed", message="x" * 900)
    text = reason_of(job, None)
    assert text is not None
    assert (len(text), text[-1]) == (400, "…")
    job["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert reason_of(job, None) is None
