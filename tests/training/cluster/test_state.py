"""The state machine as a table: what the API server says, and what becomes of it."""

from __future__ import annotations

import pytest

from tests.training.cluster.samples import ray_job, ready_pod, unscheduled_pod, waiting_pod, workload
from training.cluster.position import Position
from training.cluster.state import JobState, Observation, advance, judge
from training.errors import ExitStatus

EXIT = "Job entrypoint command failed with exit code {}, last available logs (truncated to 20,000 chars):\nerror"
FULL = "couldn't assign flavors to pod set workers: insufficient quota for nvidia.com/gpu in flavor h100"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Observation(job=ray_job(suspend=True)), JobState(stage="queued", reason="Kueue has not taken it up yet")),
        (
            Observation(
                job=ray_job("Suspended", suspend=True),
                workload=workload(QuotaReserved=f"!{FULL}"),
                position=Position(in_team=2, in_cluster=5),
            ),
            JobState(stage="queued", reason=FULL, position=Position(in_team=2, in_cluster=5)),
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
            JobState(stage="starting", reason="admitted by the queue"),
        ),
        (
            Observation(job=ray_job("Initializing"), pods=[unscheduled_pod("no node")]),
            JobState(stage="starting", reason="pod digits-head: Unschedulable: no node"),
        ),
        (Observation(job=ray_job("Running", "PENDING"), pods=[ready_pod("a")]), JobState(stage="starting")),
        (Observation(job=ray_job("Running", "RUNNING")), JobState(stage="running")),
        (
            Observation(job=ray_job("Retrying", message="attempt 2")),
            JobState(stage="restarting", reason="attempt 2"),
        ),
        (Observation(job=ray_job("Complete", "SUCCEEDED")), JobState(stage="done", status=ExitStatus.DONE)),
        (
            Observation(job=ray_job("Complete", "STOPPED")),
            JobState(stage="stopped", reason="the driver was stopped", status=ExitStatus.INTERRUPTED),
        ),
        (
            Observation(job=None),
            JobState(stage="deleted", reason="somebody deleted the job", status=ExitStatus.FAILED),
        ),
    ],
)
def test_what_is_seen_of_a_job_is_one_state(seen: Observation, expected: JobState) -> None:
    assert judge(seen) == expected


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
    state = judge(Observation(job=ray_job("Failed", "FAILED", reason="AppFailed", message=EXIT.format(code))))
    assert (state.stage, state.status) == (stage, status)


def test_a_job_the_operator_gave_up_says_why_and_what_to_do() -> None:
    state = judge(Observation(job=ray_job("Failed", reason="DeadlineExceeded", message="The RayJob has passed it")))
    assert (state.reason, state.status) == ("DeadlineExceeded: The RayJob has passed it", ExitStatus.FAILED)
    assert "--deadline-hours" in state.remedy


def test_a_job_that_failed_before_it_ran_keeps_the_reason_of_its_pods() -> None:
    starting = advance(
        None, Observation(job=ray_job("Initializing"), pods=[waiting_pod("ImagePullBackOff", "not found")])
    )
    failed = advance(starting, Observation(job=ray_job("Failed", reason="PreRunningDeadlineExceeded")))
    assert "PreRunningDeadlineExceeded" in failed.reason
    assert "ImagePullBackOff: not found" in failed.reason


def test_a_job_that_failed_while_it_ran_does_not_speak_of_its_start() -> None:
    starting = advance(None, Observation(job=ray_job("Initializing"), pods=[waiting_pod("ImagePullBackOff")]))
    running = advance(starting, Observation(job=ray_job("Running", "RUNNING")))
    failed = advance(running, Observation(job=ray_job("Failed", "FAILED", message=EXIT.format(1))))
    assert failed.reason == "the driver ended with exit code 1"


@pytest.mark.parametrize("deployment", ["Running", "Suspending"])
def test_a_stopped_workload_is_stopping_while_its_pods_end(deployment: str) -> None:
    seen = Observation(job=ray_job(deployment, "RUNNING"), workload=workload(active=False), pods=[ready_pod("a")])
    assert judge(seen) == JobState(stage="stopping", reason="1 pod is saving and ending")


def test_a_stopped_workload_without_pods_is_stopped() -> None:
    state = judge(Observation(job=ray_job("Suspended", suspend=True), workload=workload(active=False)))
    assert (state.stage, state.status) == ("stopped", ExitStatus.INTERRUPTED)


GIVEN_UP = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"


def test_a_job_that_kueue_gave_up_has_failed_and_was_not_stopped_by_somebody() -> None:
    held = workload(active=False, Evicted=GIVEN_UP)
    state = judge(Observation(job=ray_job("Suspended", suspend=True), workload=held))
    assert (state.stage, state.status) == ("failed", ExitStatus.FAILED)
    assert "exceeding the maximum number of re-queuing retries" in state.reason


def test_a_job_that_was_resumed_after_kueue_gave_it_up_and_then_stopped_is_stopped() -> None:
    held = workload(active=False, Evicted=f"!Previously: {GIVEN_UP}")
    assert judge(Observation(job=ray_job("Suspended", suspend=True), workload=held)).stage == "stopped"


def test_a_job_that_never_ran_says_what_its_pods_waited_for_also_to_who_did_not_follow_it() -> None:
    job = ray_job("Failed", reason="PreRunningDeadlineExceeded", startTime="2026-11-21T08:00:00Z")
    assert "no node" in judge(Observation(job=job, pods=[unscheduled_pod("no node")])).reason
    ran = ray_job("Failed", reason="DeadlineExceeded", rayJobInfo={"startTime": "2026-11-21T08:05:00Z"})
    assert "no node" not in judge(Observation(job=ran, pods=[unscheduled_pod("no node")])).reason


def test_a_job_that_is_done_stays_done_whatever_its_workload_says() -> None:
    assert judge(Observation(job=ray_job("Complete", "SUCCEEDED"), workload=workload(active=False))).stage == "done"


def test_a_job_that_is_being_deleted_is_stopping() -> None:
    job = ray_job("Running", "RUNNING")
    job["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert judge(Observation(job=job)).stage == "stopping"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (
            "pod set a: flavor system doesn't match node affinity, no quota, untolerated taint {spot true} in flavor t4",
            "pod set a: no quota",
        ),
        (
            "to pod set workers: flavor system doesn't match node affinity",
            "to pod set workers: flavor system doesn't match node affinity",
        ),
    ],
)
def test_a_queued_job_tells_of_the_group_that_it_asked_for(told: str, shown: str) -> None:
    seen = Observation(job=ray_job("Suspended", suspend=True), workload=workload(QuotaReserved=f"!{told}"))
    assert judge(seen).reason == shown
