"""The state of a job, from its objects on the API server, how a follower shows it, and when an ended job expires."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from tests.training.cluster.samples import pod, ray_job, ready_pod, unscheduled_pod, waiting_pod, workload
from training.cluster.queue_position import QueuePosition
from training.cluster.retention import expired_jobs
from training.cluster.state import JobState, Observation, next_state, state_of
from training.cluster.view import JobView
from training.errors import ExitStatus

EXIT = "Job entrypoint command failed with exit code {}, last available logs (truncated to 20,000 chars):\nerror"
FULL = "couldn't assign flavors to pod set workers: insufficient quota for nvidia.com/gpu in flavor h100"


def test_each_observation_is_one_state() -> None:
    def seen(job: Manifest | None, **more: Any) -> Observation:  # noqa: ANN401 - its other fields
        return Observation(job=job, **more)

    queued, second = ray_job("Suspended", suspend=True), QueuePosition(in_team=2, in_cluster=5)
    preempted = workload(Evicted="Preempted to accommodate a workload", QuotaReserved="!pending")
    gated = workload(QuotaReserved="!Admission is gated by: ray-train-platform/quota-return")
    sized, deleted = ray_job("Running", "RUNNING"), ray_job("Running", "RUNNING")
    sized["metadata"]["annotations"] = {"ray-train-platform/sizing": "4 of 1-8 worker pods"}
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    suspending = ray_job("Suspending", "RUNNING", suspend=True)
    saving = {"workload": workload(active=False), "pods": [ready_pod("a")]}
    no_node = [unscheduled_pod("no node")]
    cases: list[tuple[Observation, str, str, ExitStatus | None]] = [
        (seen(ray_job(suspend=True)), "queued", "Kueue has not created its Workload yet", None),
        (seen(queued, workload=workload(QuotaReserved=f"!{FULL}"), position=second), "queued", FULL, None),
        (seen(suspending, workload=preempted), "queued", "Preempted to accommodate a workload; pending", None),
        (
            seen(ray_job(suspend=True), workload=workload(QuotaReserved="ok", Admitted="ok")),
            "starting",
            "admitted",
            None,
        ),
        (seen(ray_job("Initializing"), pods=no_node), "starting", "pod digits-head: Unschedulable: no node", None),
        (seen(ray_job("Running", "PENDING"), pods=[ready_pod("a")]), "starting", "", None),
        (seen(ray_job("Running", "RUNNING")), "running", "", None),
        (seen(sized), "running", "4 of 1-8 worker pods", None),
        (
            seen(ray_job(suspend=True), workload=gated),
            *("queued", "elastic jobs of other teams are returning GPUs of the team's quota", None),
        ),
        (seen(ray_job("Running", "SUCCEEDED"), pods=[pod("digits-submitter")]), "ending", "", None),
        (seen(ray_job("Running", "FAILED")), "ending", "", None),
        (seen(ray_job("Retrying", message="attempt 2")), "restarting", "attempt 2", None),
        (seen(ray_job("Complete", "SUCCEEDED")), "done", "", ExitStatus.DONE),
        (seen(ray_job("Complete", "SUCCEEDED"), workload=workload(active=False)), "done", "", ExitStatus.DONE),
        (seen(ray_job("Complete", "STOPPED")), "stopped", "the driver was stopped", ExitStatus.INTERRUPTED),
        (seen(None), "deleted", "the job was deleted", ExitStatus.FAILED),
        (seen(ray_job("Running", "RUNNING"), **saving), "stopping", "1 pod is saving and terminating", None),
        (seen(ray_job("Suspending", "RUNNING"), **saving), "stopping", "1 pod is saving and terminating", None),
    ]
    for observed, stage, reason, status in cases:
        state = state_of(observed)
        assert (state.stage, state.reason, state.status) == (stage, reason, status)
        assert (state.position, state.remedy) == (observed.position, "")
    assert state_of(seen(deleted)).stage == "stopping"


def test_the_exit_status_mirrors_the_drivers() -> None:
    for code, stage, status in (
        (1, "failed", ExitStatus.FAILED),
        (3, "failed", ExitStatus.REFUSED),
        (130, "stopped", ExitStatus.INTERRUPTED),
        (137, "failed", ExitStatus.FAILED),
        (-9, "failed", ExitStatus.FAILED),
    ):
        state = state_of(Observation(job=ray_job("Failed", "FAILED", reason="AppFailed", message=EXIT.format(code))))
        assert (state.stage, state.status) == (stage, status), code


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


def test_a_stopped_job_without_pods_is_stopped_and_one_that_kueue_deactivated_has_failed() -> None:
    deactivated = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    for held, stage, status in (
        (workload(active=False), "stopped", ExitStatus.INTERRUPTED),
        (workload(active=False, Evicted=deactivated), "failed", ExitStatus.FAILED),
        (workload(active=False, Evicted=f"!Previously: {deactivated}"), "stopped", ExitStatus.INTERRUPTED),
    ):
        state = state_of(Observation(job=ray_job("Suspended", suspend=True), workload=held))
        assert (state.stage, state.status) == (stage, status)
        assert ("exceeding the maximum number of re-queuing retries" in state.reason) is (stage == "failed")


def test_a_failed_job_that_never_ran_has_the_reason_its_pods_waited_even_without_a_follower() -> None:
    job = ray_job("Failed", reason="PreRunningDeadlineExceeded", startTime="2026-11-21T08:00:00Z")
    assert "no node" in state_of(Observation(job=job, pods=[unscheduled_pod("no node")])).reason
    ran = ray_job("Failed", reason="DeadlineExceeded", rayJobInfo={"startTime": "2026-11-21T08:05:00Z"})
    assert "no node" not in state_of(Observation(job=ran, pods=[unscheduled_pod("no node")])).reason


def test_the_reason_of_a_queued_job_names_only_the_flavor_it_requested() -> None:
    closed = "untolerated taint {ray-train-platform/no-capacity true NoSchedule <nil>} in flavor a10g"
    other = "flavor system doesn't match node affinity"
    for message, shown in (
        (f"pod set a: {other}, no quota, untolerated taint {{spot true}} in flavor t4", "pod set a: no quota"),
        (f"to pod set workers: {other}", f"to pod set workers: {other}"),
        (
            f"to pod set workers: {closed}",
            f"to pod set workers: {closed}: AWS had no capacity for that group lately; it is tried again within an hour",
        ),
    ):
        seen = Observation(job=ray_job("Suspended", suspend=True), workload=workload(QuotaReserved=f"!{message}"))
        assert state_of(seen).reason == shown


def shown(*states: JobState) -> list[str]:
    """The lines of a follower without a terminal, without their times."""
    stream = io.StringIO()
    view = JobView(stream, is_terminal=False)
    for state in states:
        view.state(state)
    return [line.partition("] ")[2] or line for line in stream.getvalue().splitlines()]


def test_a_state_is_shown_once_and_its_reason_whenever_it_changes() -> None:
    waiting = JobState(stage="queued", position=QueuePosition(in_team=2), reason="no quota")
    nearer = JobState(stage="queued", position=QueuePosition(in_team=1), reason="no quota")
    assert shown(waiting, waiting, nearer) == ["queued", "  position 2: no quota", "  position 1: no quota"]
    running, ending = JobState(stage="running"), JobState(stage="ending")
    done = JobState(stage="done", status=ExitStatus.DONE)
    assert shown(running, ending, done) == ["running", "the driver has ended", "done"]
    failed = JobState(stage="failed", reason="the driver exited with code 1", status=ExitStatus.FAILED)
    assert shown(running, failed) == ["running", "failed: the driver exited with code 1"]


def test_the_drivers_steps_move_a_bar_on_a_terminal_and_are_shown_verbatim_elsewhere() -> None:
    line = "step  5/10  loss 0.3"
    elsewhere, terminal = io.StringIO(), io.StringIO()
    JobView(elsewhere, is_terminal=False).log(line)
    assert elsewhere.getvalue() == f"{line}\n"
    view = JobView(terminal, is_terminal=True)
    view.log(line)
    view.tick()
    view.close()
    assert "5/10" in terminal.getvalue()
    assert "step  5/10" not in terminal.getvalue()


NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def ended(days_ago: float, *, keep: str | None = "14", deployment: str = "Complete") -> Manifest:
    """A job that ended a number of days before NOW."""
    job = ray_job(deployment, endTime=(NOW - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    job["metadata"]["annotations"] = {} if keep is None else {KEEP_ANNOTATION: keep}
    return job


def test_a_job_expires_its_retention_time_after_its_end() -> None:
    for job, expires in (
        (ended(15), True),
        (ended(13), False),
        (ended(15, deployment="Failed"), True),
        (ended(15, keep="30"), False),
        (ended(0.1, keep="0"), True),
        (ended(99, keep=None), False),
        (ended(99, keep="for ever"), False),
        (ended(99, deployment="Suspended"), False),
        (ended(99, deployment="Running"), False),
        (ended(99, deployment="Retrying"), False),
    ):
        assert bool(expired_jobs([job], now=NOW)) is expires, job


def test_a_job_that_never_started_expires_its_retention_time_after_its_creation() -> None:
    job = ended(0, deployment="ValidationFailed")
    del job["status"]["endTime"]
    job["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    assert expired_jobs([job], now=NOW) == [job]
