"""The state of a job, from its objects on the API server."""

from __future__ import annotations

import pytest

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import pod, ray_job, ready_pod, unscheduled_pod, waiting_pod, workload
from training.cluster.queue_position import QueuePosition
from training.cluster.state import JobState, Observation, next_state, state_of
from training.errors import ExitStatus

EXIT = "Job entrypoint command failed with exit code {}, last available logs (truncated to 20,000 chars):\nerror"
FULL = "couldn't assign flavors to pod set workers: insufficient quota for nvidia.com/gpu in flavor h100"


def _sized(text: str) -> Manifest:
    """An elastic job that runs."""
    job = ray_job("Running", "RUNNING")
    return {**job, "metadata": {**job["metadata"], "annotations": {"ray-train-platform/sizing": text}}}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            Observation(job=ray_job(suspend=True)),
            JobState(stage="queued", reason="Kueue has not created its Workload yet"),
        ),
        (
            Observation(
                job=ray_job("Suspended", suspend=True),
                workload=workload(QuotaReserved=f"!{FULL}"),
                position=QueuePosition(in_team=2, in_cluster=5),
            ),
            JobState(stage="queued", reason=FULL, position=QueuePosition(in_team=2, in_cluster=5)),
        ),
        (
            Observation(
                job=ray_job("Suspending", "RUNNING", suspend=True),
                workload=workload(Evicted="Preempted to accommodate a workload", QuotaReserved="!pending"),
            ),
            JobState(stage="queued", reason="Preempted to accommodate a workload; pending"),
        ),
        (
            Observation(job=ray_job(suspend=True), workload=workload(QuotaReserved="ok", Admitted="ok")),
            JobState(stage="starting", reason="admitted"),
        ),
        (
            Observation(job=ray_job("Initializing"), pods=[unscheduled_pod("no node")]),
            JobState(stage="starting", reason="pod digits-head: Unschedulable: no node"),
        ),
        (Observation(job=ray_job("Running", "PENDING"), pods=[ready_pod("a")]), JobState(stage="starting")),
        (Observation(job=ray_job("Running", "RUNNING")), JobState(stage="running")),
        (Observation(job=_sized("4 of 1-8 worker pods")), JobState(stage="running", reason="4 of 1-8 worker pods")),
        (
            Observation(
                job=ray_job(suspend=True),
                workload=workload(QuotaReserved="!Admission is gated by: ray-train-platform/quota-return"),
            ),
            JobState(stage="queued", reason="elastic jobs of other teams are returning GPUs of the team's quota"),
        ),
        (Observation(job=ray_job("Running", "SUCCEEDED"), pods=[pod("digits-submitter")]), JobState(stage="ending")),
        (Observation(job=ray_job("Running", "FAILED")), JobState(stage="ending")),
        (Observation(job=ray_job("Running", "STOPPED")), JobState(stage="ending")),
        (Observation(job=ray_job("Retrying", message="attempt 2")), JobState(stage="restarting", reason="attempt 2")),
        (Observation(job=ray_job("Complete", "SUCCEEDED")), JobState(stage="done", status=ExitStatus.DONE)),
        (
            Observation(job=ray_job("Complete", "STOPPED")),
            JobState(stage="stopped", reason="the driver was stopped", status=ExitStatus.INTERRUPTED),
        ),
        (Observation(job=None), JobState(stage="deleted", reason="the job was deleted", status=ExitStatus.FAILED)),
    ],
)
def test_each_observation_is_one_state(seen: Observation, expected: JobState) -> None:
    assert state_of(seen) == expected


@pytest.mark.parametrize(
    ("code", "stage", "status"),
    [
        (1, "failed", ExitStatus.FAILED),
        (2, "failed", ExitStatus.WRONG_INPUT),
        (3, "failed", ExitStatus.REFUSED),
        (130, "stopped", ExitStatus.INTERRUPTED),
        (137, "failed", ExitStatus.FAILED),
        (-9, "failed", ExitStatus.FAILED),
    ],
)
def test_the_exit_status_mirrors_the_drivers(code: int, stage: str, status: ExitStatus) -> None:
    state = state_of(Observation(job=ray_job("Failed", "FAILED", reason="AppFailed", message=EXIT.format(code))))
    assert (state.stage, state.status) == (stage, status)


def test_a_job_that_kuberay_failed_has_a_reason_and_a_remedy() -> None:
    state = state_of(Observation(job=ray_job("Failed", reason="DeadlineExceeded", message="The RayJob has passed it")))
    assert (state.reason, state.status) == ("DeadlineExceeded: The RayJob has passed it", ExitStatus.FAILED)
    assert "--deadline-hours" in state.remedy


def test_a_job_that_failed_before_it_ran_keeps_the_reason_of_its_pods() -> None:
    starting = next_state(
        None, Observation(job=ray_job("Initializing"), pods=[waiting_pod("ImagePullBackOff", "not found")])
    )
    failed = next_state(starting, Observation(job=ray_job("Failed", reason="PreRunningDeadlineExceeded")))
    assert "PreRunningDeadlineExceeded" in failed.reason
    assert "ImagePullBackOff: not found" in failed.reason


def test_a_job_that_failed_while_it_ran_has_no_reason_from_its_start() -> None:
    starting = next_state(None, Observation(job=ray_job("Initializing"), pods=[waiting_pod("ImagePullBackOff")]))
    running = next_state(starting, Observation(job=ray_job("Running", "RUNNING")))
    ending = next_state(running, Observation(job=ray_job("Running", "FAILED"), pods=[waiting_pod("Completed")]))
    failed = next_state(ending, Observation(job=ray_job("Failed", "FAILED", message=EXIT.format(1))))
    assert failed.reason == "the driver exited with code 1"


@pytest.mark.parametrize("deployment", ["Running", "Suspending"])
def test_a_stopped_workload_is_stopping_while_its_pods_end(deployment: str) -> None:
    seen = Observation(job=ray_job(deployment, "RUNNING"), workload=workload(active=False), pods=[ready_pod("a")])
    assert state_of(seen) == JobState(stage="stopping", reason="1 pod is saving and terminating")


def test_a_stopped_workload_without_pods_is_stopped() -> None:
    state = state_of(Observation(job=ray_job("Suspended", suspend=True), workload=workload(active=False)))
    assert (state.stage, state.status) == ("stopped", ExitStatus.INTERRUPTED)


DEACTIVATED = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"


def test_a_job_that_kueue_deactivated_is_failed_not_stopped() -> None:
    held = workload(active=False, Evicted=DEACTIVATED)
    state = state_of(Observation(job=ray_job("Suspended", suspend=True), workload=held))
    assert (state.stage, state.status) == ("failed", ExitStatus.FAILED)
    assert "exceeding the maximum number of re-queuing retries" in state.reason


def test_a_job_resumed_after_kueue_deactivated_it_and_then_stopped_is_stopped() -> None:
    held = workload(active=False, Evicted=f"!Previously: {DEACTIVATED}")
    assert state_of(Observation(job=ray_job("Suspended", suspend=True), workload=held)).stage == "stopped"


def test_a_failed_job_that_never_ran_has_the_reason_its_pods_waited_even_without_a_follower() -> None:
    job = ray_job("Failed", reason="PreRunningDeadlineExceeded", startTime="2026-11-21T08:00:00Z")
    assert "no node" in state_of(Observation(job=job, pods=[unscheduled_pod("no node")])).reason
    ran = ray_job("Failed", reason="DeadlineExceeded", rayJobInfo={"startTime": "2026-11-21T08:05:00Z"})
    assert "no node" not in state_of(Observation(job=ran, pods=[unscheduled_pod("no node")])).reason


def test_a_done_job_stays_done_whatever_its_workload_says() -> None:
    assert state_of(Observation(job=ray_job("Complete", "SUCCEEDED"), workload=workload(active=False))).stage == "done"


def test_a_job_that_is_being_deleted_is_stopping() -> None:
    job = ray_job("Running", "RUNNING")
    job["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert state_of(Observation(job=job)).stage == "stopping"


CLOSED = "untolerated taint {ray-train-platform/no-capacity true NoSchedule <nil>} in flavor a10g"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "pod set a: flavor system doesn't match node affinity, no quota, untolerated taint {spot true} in flavor t4",
            "pod set a: no quota",
        ),
        (
            "to pod set workers: flavor system doesn't match node affinity",
            "to pod set workers: flavor system doesn't match node affinity",
        ),
        (
            f"to pod set workers: {CLOSED}",
            f"to pod set workers: {CLOSED}: AWS had no capacity for that group lately; it is tried again within an hour",
        ),
    ],
)
def test_the_reason_of_a_queued_job_names_only_the_flavor_it_requested(message: str, shown: str) -> None:
    seen = Observation(job=ray_job("Suspended", suspend=True), workload=workload(QuotaReserved=f"!{message}"))
    assert state_of(seen).reason == shown
