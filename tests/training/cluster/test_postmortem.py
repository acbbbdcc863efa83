"""The first cause of a job's end, from the records that the recorder makes of what the API server says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from infra.spec.manifest import Manifest
from observability.postmortem import page
from observability.postmortem.causes import first_cause
from observability.postmortem.rule import Cause
from platform_charts.images.job_recorder import fold, store
from platform_charts.images.job_recorder.pods import NodeFacts
from platform_charts.jobs import rayjob as rendered
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.observability.report.parsed_page import Page
from tests.platform_charts.images.job_recorder.samples import (
    Recording,
    at,
    condition,
    ended,
    event,
    pod,
    raycluster,
    rayjob,
    workload,
)
from training.cluster import records
from training.cluster.postmortem import make_case

LOST = {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "endTime": at(30), "jobStatus": "FAILED"}
RAN = {"startTime": at(4), "endTime": at(25)}
EXITED = "Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 chars):\n{log}"
HANG = "error: rank 3 did not answer within 300 s (scale.collective_timeout), in step 13, at train.py:9 in fail\n  remedy: look"


def failed(code: int = 1, log: str = "") -> Manifest:
    return rayjob(**LOST, rayJobInfo=RAN, message=EXITED.format(code=code, log=log))


def recorded(job: Manifest, *pods: Manifest, events: tuple[Manifest, ...] = (), **nodes: NodeFacts) -> Recording:
    """A job that has run, and its pods, in the state in which they were last seen."""
    seen = Recording(**nodes)
    seen.see("RayJob", rayjob(jobDeploymentStatus="Running"))
    seen.see("RayCluster", raycluster())
    seen.see("Pod", *pods)
    seen.see("Event", *events)
    seen.see("RayJob", job)
    return seen


def cause(seen: Recording) -> Cause:
    return first_cause(make_case(seen.read()))


def disrupted(reason: str) -> Manifest:
    return pod(conditions=(condition("DisruptionTarget", reason=reason, time=at(10)),))


def waiting(reason: str) -> Manifest:
    return pod(state={"waiting": {"reason": reason, "message": "not found"}}, startTime=None)


MEMORY = pod(state=ended(137, "OOMKilled", time=at(10)))


def test_each_end_has_its_cause() -> None:
    disk = pod(reason="Evicted", message="low on resource: ephemeral-storage", phase="Failed")
    drained, spot = disrupted("EvictionByEvictionAPI"), NodeFacts(capacity="spot", state="ready")
    killed, gone = pod(state=ended(137, time=at(10))), NodeFacts(state="gone")
    late, over = rayjob(**{**LOST, "reason": "PreRunningDeadlineExceeded"}), {**LOST, "reason": "DeadlineExceeded"}
    raised = failed(log="error: rank 1 failed: ValueError: label 12\n  remedy: correct it")
    own = failed(code=2, log="Traceback (most recent call last):\n  File …\nKeyError: 'x'\n")
    unknown = rayjob(**{**LOST, "reason": "SubmissionFailed", "message": "no route"})
    complete = rayjob(jobDeploymentStatus="Complete", endTime=at(9))
    cases: list[tuple[Recording, str, str]] = [
        (recorded(failed(), MEMORY), "memory", "pod worker-0, container ray-worker: OOMKilled, exit code 137"),
        (recorded(failed(), disk), "eviction", "ephemeral-storage"),
        (recorded(failed(), disrupted("PreemptionByScheduler")), "preemption", "higher priority"),
        (recorded(failed(), disrupted("DeletionByTaintManager")), "node lost", "node-of-worker-0 was lost"),
        (recorded(failed(), drained), "drain", "was drained"),
        (recorded(failed(), drained, node_of_worker_0=spot), "spot", "a spot node"),
        (recorded(failed(), killed, node_of_worker_0=gone), "node lost", "node-of-worker-0 was gone"),
        (recorded(rayjob(**LOST), waiting("ImagePullBackOff")), "image", "ImagePullBackOff: not found"),
        (recorded(late, waiting("ErrImagePull")), "not ready", "did not start in time: pod worker-0"),
        (
            recorded(rayjob(**LOST), events=(event("e1", about="cluster-1"),)),
            "not scheduled",
            "0/9 nodes are available",
        ),
        (recorded(raised), "exception", "rank 1 failed: ValueError: label 12"),
        (recorded(failed(log=HANG)), "hang", "rank 3 did not answer within 300 s"),
        (recorded(own), "error", "the driver exited with code 2: KeyError: 'x'"),
        (recorded(rayjob(**LOST), pod("head-0", "head", state=ended(1))), "container", "exit code 1"),
        (recorded(rayjob(**over)), "deadline", "exceeded its deadline"),
        (recorded(failed(code=130)), "stopped", "saved its state and stopped"),
        (recorded(unknown), "unknown", "SubmissionFailed: no route"),
        (recorded(complete, MEMORY), "done", "job first is done"),
        (recorded(rayjob(jobDeploymentStatus="Running", jobStatus="RUNNING")), "runs", "Running RUNNING"),
    ]
    for seen, kind, text in cases:
        found = cause(seen)
        assert (found.kind, text in found.sentence) == (kind, True), found


def test_the_earliest_failure_is_the_cause_and_the_others_its_effects() -> None:
    late = pod("worker-1", conditions=(condition("DisruptionTarget", reason="DeletionByTaintManager", time=at(12)),))
    assert cause(recorded(failed(log=HANG), late, MEMORY)).kind == "memory"
    early = pod("worker-1", conditions=(condition("DisruptionTarget", reason="DeletionByTaintManager", time=at(8)),))
    assert cause(recorded(failed(log=HANG), MEMORY, early)).kind == "node lost"


def test_a_failure_of_an_earlier_attempt_is_not_the_cause() -> None:
    seen = recorded(rayjob(jobDeploymentStatus="Running"), MEMORY)
    again = pod("again-0", created=at(15))
    again["metadata"]["labels"]["ray.io/cluster"] = "cluster-2"
    seen.see("Pod", again)
    seen.see("RayJob", failed(log="error: rank 0 failed: ValueError: label 12"))
    assert cause(seen).kind == "exception"


def test_a_deleted_job_says_what_it_was_doing() -> None:
    seen = recorded(rayjob(jobDeploymentStatus="Running"), pod())
    seen.see("RayJob", rayjob(jobDeploymentStatus="Running"), is_gone=True)
    found = cause(seen)
    assert (found.kind, found.sentence) == (
        "deleted",
        "job first was deleted while it was running; nothing had failed before",
    )


def test_a_stop_by_the_team_is_told_from_one_by_kueue() -> None:
    by_team = recorded(rayjob(jobDeploymentStatus="Suspended"), pod())
    by_team.see("Workload", workload(condition("Evicted", message="The workload is deactivated"), active=False))
    assert cause(by_team).kind == "stopped"
    message = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    by_kueue = recorded(rayjob(jobDeploymentStatus="Suspended"), waiting("ImagePullBackOff"))
    by_kueue.see("Workload", workload(condition("Evicted", message=message), active=False))
    found = cause(by_kueue)
    assert found.kind == "not ready"
    assert "ImagePullBackOff" in found.sentence


def test_a_preempted_job_is_queued_again() -> None:
    seen = recorded(rayjob(jobDeploymentStatus="Suspended"))
    quota = condition("QuotaReserved", status="False", message="insufficient unused quota")
    preempted = condition("Evicted", reason="Preempted", message="Preempted by another job")
    seen.see("Workload", workload(preempted, quota, condition("Admitted", status="False")))
    found = cause(seen)
    assert found.kind == "runs"
    assert found.sentence.endswith("evicted (Preempted by another job); queued: insufficient unused quota")


def test_the_page_and_the_text_show_pods_events_and_earlier_submissions() -> None:
    seen = recorded(
        failed(log="error: <b>rank</b> 1 failed: ValueError"), MEMORY, pod("head-0", "head"), events=(event("e1"),)
    )
    earlier = recorded(rayjob(jobDeploymentStatus="Complete", endTime=at(9)))
    case = make_case(seen.read(), [earlier.read()])
    shown = Page(page.render(case))
    for text in ("OOMKilled, exit code 137", "worker-0", "head-0", "0/9 nodes are available", "job first is done"):
        assert text in shown.text
    assert "<b>rank</b>" in shown.text
    assert [ET.fromstring(one).tag.rpartition("}")[2] for one in shown.drawings] == ["svg"]  # noqa: S314 - our own
    assert not [one for one in shown.references if not one.startswith("#")]
    text = page.text(case)
    assert text.splitlines()[0] == "job first: failed"
    assert "cause: pod worker-0, container ray-worker: OOMKilled" in text
    assert "FailedScheduling: 0/9 nodes are available" in text


def test_both_sides_of_a_record_agree_on_its_names() -> None:
    assert (fold.ENDED, fold.KEEP_ANNOTATION, fold.JOB_LABEL) == (rendered.ENDED, rendered.KEEP_ANNOTATION, JOB_LABEL)
    assert (store.RECORD_LABEL, store.EXPIRY_ANNOTATION, store.KEY) == (
        records.RECORD_LABEL,
        records.EXPIRY_ANNOTATION,
        records.KEY,
    )
