"""The states a job on the cluster passes through: what the API server says of it becomes one of them, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from infra.spec.manifest import Manifest
from training.cluster.conditions import conditions, has_condition, one_line
from training.cluster.position import Position, is_active
from training.cluster.waiting import waiting_reason
from training.errors import ExitStatus

Stage = Literal["queued", "starting", "running", "restarting", "stopping", "stopped", "done", "failed", "deleted"]

ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
"""`jobDeploymentStatus` of a RayJob that KubeRay does nothing more for (ray-operator/apis/ray/v1/rayjob_types.go)."""

_LONGEST_REASON = 400

_EXIT_CODE = re.compile(r"entrypoint command failed with exit code (-?\d+)")
"""How Ray's job supervisor words a driver that failed; KubeRay hands it on as the RayJob's message."""

_GIVEN_UP = re.compile(r"The workload is deactivated due to (.*)")
"""How Kueue words that it took a workload out of the queue itself (workload_controller.go at v0.19.2)."""

_DEACTIVATED = "The workload is deactivated"
"""How Kueue begins what it says of a workload that somebody, or Kueue itself, took out of the queue."""

_OTHER_FLAVOR = re.compile(
    r"(?:flavor \S+ doesn't match node affinity|untolerated taint \{[^}]*\} in flavor [^\s,]+)(?:, |$)"
)
"""What Kueue says of each group that a job never asked for, before and after what it says of the one that it waits for."""

_MIRRORED = {int(status): status for status in ExitStatus if status is not ExitStatus.DONE}

_REMEDIES = {
    "DeadlineExceeded": "give it more time with --deadline-hours; resume it to go on from its newest checkpoint",
    "PreRunningDeadlineExceeded": "the pods did not start in time; the reason they waited is above",
    "SubmissionFailed": "the submitter could not reach the job's cluster; its log says why",
    "ValidationFailed": "the operator refuses the template: its version and this checkout's differ",
}


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the API server said of one job at one moment.

    Attributes:
        job: the RayJob; None once it is deleted.
        workload: Kueue's Workload of it; None before Kueue has seen the job, and where Kueue does not run.
        position: its place while it is pending.
        pods: head, workers and submitter.
        events: of the job, its cluster and its pods.
    """

    job: Manifest | None
    workload: Manifest | None = None
    position: Position | None = None
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()


@dataclass(frozen=True, kw_only=True)
class JobState:
    """One state of a job.

    Attributes:
        stage: its name.
        reason: why it is in it, one line; empty where there is nothing to say.
        position: place in the queue, while queued.
        status: the exit status that a command which waits for the job ends with; None while it goes on.
        remedy: what to do about a failure.
    """

    stage: Stage
    reason: str = ""
    position: Position | None = None
    status: ExitStatus | None = None
    remedy: str = field(default="", compare=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to the job by itself."""
        return self.status is not None


def advance(previous: JobState | None, seen: Observation) -> JobState:
    """The state that follows; a job that fails before it ran keeps the reason its pods waited for.

    The operator deletes the pods of a job it gives up, and with them what they would have said.
    """
    state = judge(seen)
    if state.stage == "failed" and previous is not None and previous.stage == "starting" and previous.reason:
        return replace(state, reason=f"{state.reason}; its pods waited: {previous.reason}")
    return state


def judge(seen: Observation) -> JobState:
    """The state that one observation shows."""
    if seen.job is None:
        return JobState(stage="deleted", reason="somebody deleted the job", status=ExitStatus.FAILED)
    status = seen.job.get("status") or {}
    deployment = status.get("jobDeploymentStatus", "")
    if deployment in ENDED:
        return _completed(status) if deployment == "Complete" else _failed(status, seen)
    if seen.job["metadata"].get("deletionTimestamp"):
        return JobState(stage="stopping", reason="the job is being deleted")
    if seen.workload is not None and not is_active(seen.workload):
        return _stopped(deployment, seen.workload, seen.pods)
    if seen.job["spec"].get("suspend") or deployment in {"Suspending", "Suspended"}:
        return _queued(seen)
    return _on_its_nodes(status, seen)


def _on_its_nodes(status: Manifest, seen: Observation) -> JobState:
    deployment = status.get("jobDeploymentStatus", "")
    if deployment == "Retrying":
        return JobState(stage="restarting", reason=one_line(status.get("message", ""), longest=_LONGEST_REASON))
    if deployment == "Running" and status.get("jobStatus") == "RUNNING":
        return JobState(stage="running")
    return JobState(stage="starting", reason=waiting_reason(seen.pods, seen.events))


def _completed(status: Manifest) -> JobState:
    if status.get("jobStatus") == "STOPPED":
        return JobState(stage="stopped", reason="the driver was stopped", status=ExitStatus.INTERRUPTED)
    return JobState(stage="done", status=ExitStatus.DONE)


def _failed(status: Manifest, seen: Observation) -> JobState:
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    code = _EXIT_CODE.search(message)
    if code is not None:
        number = int(code[1])
        exit_status = _MIRRORED.get(number, ExitStatus.FAILED)
        if exit_status is ExitStatus.INTERRUPTED:
            return JobState(stage="stopped", reason="the run saved its state and stopped", status=exit_status)
        return JobState(stage="failed", reason=f"the driver ended with exit code {number}", status=exit_status)
    has_run = (status.get("rayJobInfo") or {}).get("startTime")
    parts = [
        reason,
        one_line(message, longest=_LONGEST_REASON),
        "" if has_run else waiting_reason(seen.pods, seen.events),
    ]
    return JobState(
        stage="failed",
        reason=": ".join(part for part in parts if part) or "the operator gives no reason",
        status=ExitStatus.FAILED,
        remedy=_REMEDIES.get(reason, ""),
    )


def _stopped(deployment: str, workload: Manifest, pods: Sequence[Manifest]) -> JobState:
    """Kueue takes the job's nodes as soon as its workload is inactive; it is stopped when the last pod has ended."""
    left = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
    if deployment not in {"", "Suspended"} or left:
        return JobState(stage="stopping", reason=_count_ending(len(left)))
    given_up = _GIVEN_UP.search(_message(workload, "Evicted"))
    if given_up is not None and has_condition(workload, "Evicted"):
        return JobState(
            stage="failed",
            reason=f"Kueue took it out of the queue: {given_up[1]}; its pods were not all ready in time, again and again",
            status=ExitStatus.FAILED,
            remedy="find out what keeps its pods, e.g. capacity that AWS does not have; resume it to queue it again",
        )
    return JobState(stage="stopped", reason="somebody stopped it", status=ExitStatus.INTERRUPTED)


def _count_ending(pods: int) -> str:
    if not pods:
        return ""
    return f"{pods} pod{'s are' if pods > 1 else ' is'} saving and ending"


def _queued(seen: Observation) -> JobState:
    if seen.workload is None:
        return JobState(stage="queued", reason="Kueue has not taken it up yet")
    if has_condition(seen.workload, "Admitted"):
        return JobState(stage="starting", reason="admitted by the queue")
    return JobState(
        stage="queued", reason=one_line(_waits_for(seen.workload), longest=_LONGEST_REASON), position=seen.position
    )


def _waits_for(workload: Manifest) -> str:
    """Why a job was taken off its nodes, and what it lacks now; that somebody stopped it before it was resumed is no reason."""
    lacks, evicted = (_message(workload, kind) for kind in ("QuotaReserved", "Evicted"))
    asked_for = _OTHER_FLAVOR.sub("", lacks).removesuffix(", ")
    lacks = lacks if asked_for.endswith(": ") else asked_for
    if not has_condition(workload, "Evicted") or evicted.startswith(_DEACTIVATED):
        return lacks
    return "; ".join(dict.fromkeys(part for part in (evicted, lacks) if part))


def _message(workload: Manifest, kind: str) -> str:
    return next((str(one.get("message", "")) for one in conditions(workload) if one["type"] == kind), "")
