"""The states of a job on the cluster, derived from its objects on the API server, with the reason for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from infra.spec.cluster_names import RETURN_GATE, SIZING_ANNOTATION
from infra.spec.manifest import Manifest
from infra.spec.node_labels import NO_CAPACITY_TAINT
from platform_charts.jobs.rayjob import ENDED, is_command_job
from training.cluster.node_room import NodeRoom
from training.cluster.objects import conditions, has_condition, one_line
from training.cluster.queue_position import QueuePosition, is_active
from training.cluster.topology import NO_ROOM, needs_of, with_needs
from training.cluster.waiting import waiting_reason
from training.errors import ExitStatus

Stage = Literal[
    "queued", "starting", "running", "ending", "restarting", "stopping", "stopped", "done", "failed", "deleted"
]

_LONGEST_REASON = 400

_EXIT_CODE = re.compile(r"entrypoint command failed with exit code (-?\d+)")
"""What Ray's job supervisor reports for a failed driver; KubeRay copies it into the RayJob's message."""

_DEACTIVATED_BY_KUEUE = re.compile(r"The workload is deactivated due to (.*)")
"""Kueue's message for a Workload that it deactivated itself (workload_controller.go at v0.19.2)."""

_DEACTIVATED = "The workload is deactivated"
"""Prefix of Kueue's message for any deactivated Workload."""

_OTHER_FLAVOR = re.compile(
    r"(?:flavor \S+ doesn't match node affinity|untolerated taint \{[^}]*\} in flavor [^\s,]+"
    r'|Flavor "[^"]+" does not support TopologyAwareScheduling)(?:, |$)'
)
"""Kueue's message for each flavor that a job did not request, around the one for the flavor that it waits for."""

_NO_TOPOLOGY = "does not support TopologyAwareScheduling"
"""What Kueue says of a group without a topology. If it says nothing else, its last attempt has tried the job's group: the next one
tries the flavors after it, and reports those only."""

_INACTIVE = re.compile(r"(The )?ClusterQueue( \S+)? is (stopped|inactive)")
"""Kueue's messages for a job in a queue that admits none (cluster_queue.go and workload_controller.go at v0.19.2)."""

_ENDED_DRIVER = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
"""States of a driver that is over (KubeRay 1.6.2, rayjob_types.go, `IsJobTerminal`)."""

_MIRRORED = {int(status): status for status in ExitStatus if status is not ExitStatus.DONE}

_REMEDIES = {
    "DeadlineExceeded": "resume it from its newest checkpoint with a longer --deadline-hours",
    "PreRunningDeadlineExceeded": "the pods did not start in time; the reason above says what they waited for",
    "SubmissionFailed": "the submitter could not reach the job's cluster; its log says why",
    "ValidationFailed": "KubeRay refuses the RayJob's spec: the operator's version differs from this checkout's",
}


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The objects of one job at one moment.

    Attributes:
        job: the RayJob; None once it is deleted.
        workload: its Workload; None before Kueue has seen the job, and without Kueue.
        position: its queue position while it is pending.
        pods: head, workers and submitter.
        events: events of the job, its cluster and its pods.
        rooms: what the nodes of each group offer, if known.
    """

    job: Manifest | None
    workload: Manifest | None = None
    position: QueuePosition | None = None
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    rooms: Mapping[str, NodeRoom] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobState:
    """One state of a job.

    Attributes:
        stage: its name.
        reason: why, in one line; may be empty.
        position: queue position, while queued.
        status: exit status of a command that waits for the job; None while the job is not over.
        remedy: what to do about a failure.
    """

    stage: Stage
    reason: str = ""
    position: QueuePosition | None = None
    status: int | None = None
    remedy: str = field(default="", compare=False)

    @property
    def is_over(self) -> bool:
        """Whether the job has reached a final state."""
        return self.status is not None


def next_state(previous: JobState | None, seen: Observation) -> JobState:
    """The next state; a job that fails before it ran keeps the reason that its pods waited for.

    KubeRay deletes the pods of a job that did not start in time, and their status with them.
    """
    state = state_of(seen)
    if state.stage == "failed" and previous is not None and previous.stage == "starting" and previous.reason:
        return replace(state, reason=f"{state.reason}; its pods were waiting for: {previous.reason}")
    return state


def state_of(seen: Observation) -> JobState:
    """The state in one observation."""
    if seen.job is None:
        return JobState(stage="deleted", reason="the job was deleted", status=ExitStatus.FAILED)
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
    return _admitted(status, seen)


def _admitted(status: Manifest, seen: Observation) -> JobState:
    deployment, driver = status.get("jobDeploymentStatus", ""), status.get("jobStatus")
    if deployment == "Retrying":
        return JobState(stage="restarting", reason=one_line(status.get("message", ""), longest=_LONGEST_REASON))
    if deployment == "Running" and driver == "RUNNING":
        assert seen.job is not None, "state_of has a job"
        return JobState(stage="running", reason=seen.job["metadata"].get("annotations", {}).get(SIZING_ANNOTATION, ""))
    if deployment == "Running" and driver in _ENDED_DRIVER:
        # KubeRay says that the job runs until the submitter has printed the rest of the log and its pod has ended.
        return JobState(stage="ending")
    return JobState(stage="starting", reason=waiting_reason(seen.pods, seen.events, seen.rooms))


def _completed(status: Manifest) -> JobState:
    if status.get("jobStatus") == "STOPPED":
        return JobState(stage="stopped", reason="the driver was stopped", status=ExitStatus.INTERRUPTED)
    return JobState(stage="done", status=ExitStatus.DONE)


def _failed(status: Manifest, seen: Observation) -> JobState:
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    code = _EXIT_CODE.search(message)
    if code is not None:
        return _exited(int(code[1]), seen)
    has_run = (status.get("rayJobInfo") or {}).get("startTime")
    parts = [
        reason,
        one_line(message, longest=_LONGEST_REASON),
        "" if has_run else waiting_reason(seen.pods, seen.events, seen.rooms),
    ]
    return JobState(
        stage="failed",
        reason=": ".join(part for part in parts if part) or "KubeRay reports no reason",
        status=ExitStatus.FAILED,
        remedy=_REMEDIES.get(reason, ""),
    )


def _exited(number: int, seen: Observation) -> JobState:
    """The state of a job whose driver failed; that of a user's own command exits with the status of the command."""
    is_command = seen.job is not None and is_command_job(seen.job)
    if number == ExitStatus.INTERRUPTED:
        reason = "the command was stopped" if is_command else "the run saved its state and stopped"
        return JobState(stage="stopped", reason=reason, status=ExitStatus.INTERRUPTED)
    if is_command and number > 0:
        return JobState(stage="failed", reason=f"the command exited with status {number}", status=number)
    status = _MIRRORED.get(number, ExitStatus.FAILED)
    return JobState(stage="failed", reason=f"the driver exited with code {number}", status=status)


def _stopped(deployment: str, workload: Manifest, pods: Sequence[Manifest]) -> JobState:
    """Kueue evicts the job once its Workload is inactive; the job is stopped when its last pod has ended."""
    left = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
    if deployment not in {"", "Suspended"} or left:
        return JobState(stage="stopping", reason=_terminating(len(left)))
    by_kueue = _DEACTIVATED_BY_KUEUE.search(_message(workload, "Evicted"))
    if by_kueue is not None and has_condition(workload, "Evicted"):
        return JobState(
            stage="failed",
            reason=f"Kueue deactivated its Workload: {by_kueue[1]}; its pods were repeatedly not ready in time",
            status=ExitStatus.FAILED,
            remedy="find out why its pods do not start, e.g. no capacity in AWS, then resume it",
        )
    return JobState(stage="stopped", reason="the job was stopped", status=ExitStatus.INTERRUPTED)


def _terminating(pods: int) -> str:
    if not pods:
        return ""
    return f"{pods} pod{'s are' if pods > 1 else ' is'} saving and terminating"


def _queued(seen: Observation) -> JobState:
    if seen.workload is None:
        return JobState(stage="queued", reason="Kueue has not created its Workload yet")
    if has_condition(seen.workload, "Admitted"):
        return JobState(stage="starting", reason="admitted")
    return JobState(
        stage="queued",
        reason=one_line(_explained(_pending_reason(seen.workload)), longest=_LONGEST_REASON),
        position=seen.position,
    )


def _pending_reason(workload: Manifest) -> str:
    """Why a job was evicted, and which quota it lacks now; a stop before the resume is not a reason."""
    lacks, evicted = (_message(workload, kind) for kind in ("QuotaReserved", "Evicted"))
    requested = _OTHER_FLAVOR.sub("", lacks).removesuffix(", ")
    if not requested.endswith(": "):
        lacks = with_needs(requested, workload)
    elif _NO_TOPOLOGY in lacks:
        lacks = f"{requested}{NO_ROOM} {needs_of(requested, workload)}"
    if not has_condition(workload, "Evicted") or evicted.startswith(_DEACTIVATED):
        return lacks
    return "; ".join(dict.fromkeys(part for part in (evicted, lacks) if part))


def _explained(reason: str) -> str:
    """A reason of Kueue's with what it means for the team."""
    if NO_CAPACITY_TAINT.key in reason:
        return f"{reason}: AWS had no capacity for that group lately; it is tried again within an hour"
    if RETURN_GATE in reason:
        return "elastic jobs of other teams are returning GPUs of the team's quota"
    if not _INACTIVE.search(reason):
        return reason
    return f"{reason}: it is held while the platform is updated, or misconfigured; the job starts by itself afterwards"


def _message(workload: Manifest, kind: str) -> str:
    return next((str(one.get("message", "")) for one in conditions(workload) if one["type"] == kind), "")
