"""Objects of a job as the API server has them, and the ledger that records them."""

from __future__ import annotations

from typing import Any

from infra.spec.manifest import Manifest
from observability.postmortem.record import JobRecord
from platform_charts.images.job_recorder.bounds import to_text
from platform_charts.images.job_recorder.document import Record
from platform_charts.images.job_recorder.ledger import Ledger
from platform_charts.images.job_recorder.pods import NodeFacts
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from platform_charts.jobs.scheduling import JOB_LABEL

TEAM = "research"
JOB_UID = "job-1"
START = 1_780_000_000.0
"""2026-05-28 20:26:40 UTC."""


def at(minute: int) -> str:
    """A time so many minutes after the job was created."""
    return f"2026-05-28T{20 + (26 + minute) // 60:02d}:{(26 + minute) % 60:02d}:40Z"


def rayjob(name: str = "first", uid: str = JOB_UID, *, created: str = at(0), **status: Any) -> Manifest:  # noqa: ANN401
    """A RayJob; `status` are fields of its status."""
    return {
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "uid": uid,
            "creationTimestamp": created,
            "annotations": {KEEP_ANNOTATION: "7"},
        },
        "spec": {"entrypoint": "python -m training train"},
        "status": status,
    }


def raycluster(uid: str = "cluster-1", *, job: str = JOB_UID) -> Manifest:
    """The RayCluster of a job."""
    owner = {"kind": "RayJob", "uid": job}
    metadata = {"name": uid, "namespace": TEAM, "uid": uid, "creationTimestamp": at(1), "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {"state": "ready"}}


def workload(*conditions: Manifest, active: bool = True) -> Manifest:
    """The Workload of the job."""
    metadata = {"name": "rayjob-first", "namespace": TEAM, "uid": "workload-1", "creationTimestamp": at(0)}
    metadata["labels"] = {"kueue.x-k8s.io/job-uid": JOB_UID}  # type: ignore[assignment]
    return {"metadata": metadata, "spec": {"active": active}, "status": {"conditions": list(conditions)}}


def condition(kind: str, *, status: str = "True", reason: str = "", message: str = "", time: str = at(5)) -> Manifest:
    """A condition of an object."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def ended(code: int, reason: str = "Error", *, time: str = at(20), message: str = "") -> Manifest:
    """The state of a container that has ended."""
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": time, "message": message}}


def pod(
    name: str = "worker-0",
    kind: str = "worker",
    *,
    job: str = "first",
    created: str = at(2),
    state: Manifest | None = None,
    last: Manifest | None = None,
    conditions: tuple[Manifest, ...] = (),
    metadata: Manifest | None = None,
    **status: Any,  # noqa: ANN401 - fields of a pod's status
) -> Manifest:
    """A pod of the job, on a node of its name."""
    labels = {
        JOB_LABEL: job,
        **({"ray.io/node-type": kind, "ray.io/cluster": "cluster-1"} if kind != "submitter" else {}),
    }
    container = {"name": f"ray-{kind}", "restartCount": 0, "state": state or {"running": {}}}
    if last is not None:
        container |= {"lastState": last, "restartCount": 1}
    return {
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "uid": name,
            "creationTimestamp": created,
            "labels": labels,
            **(metadata or {}),
        },
        "spec": {"nodeName": f"node-of-{name}"},
        "status": {
            "phase": "Running",
            "startTime": at(3),
            "conditions": [condition("PodScheduled", time=at(2)), *conditions],
            "containerStatuses": [container],
            **status,
        },
    }


def event(uid: str, *, about: str = "worker-0", kind: str = "Pod", count: int = 1, **fields: Any) -> Manifest:  # noqa: ANN401
    """An Event about a pod of the job, or about another object."""
    return {
        "metadata": {"name": uid, "namespace": TEAM, "uid": uid, "creationTimestamp": at(2)},
        "involvedObject": {"kind": kind, "name": about, "uid": about, "namespace": TEAM},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/9 nodes are available",
        "count": count,
        "firstTimestamp": at(2),
        "lastTimestamp": at(2 + count),
        **fields,
    }


class Recording:
    """A ledger with a clock of its own, to which objects are shown one after the other, first the jobs."""

    def __init__(self, *jobs: Manifest, **nodes: NodeFacts) -> None:
        self.ledger = Ledger(node=lambda name: nodes.get(name.replace("-", "_"), NodeFacts(state="ready")), settle=60)
        self.clock = 0.0
        self.see("RayJob", *jobs)

    def see(self, kind: str, *objects: Manifest, is_gone: bool = False) -> None:
        """Show objects of a kind."""
        for one in objects:
            self.ledger.see(kind, one, is_gone=is_gone, at=START + self.clock, clock=self.clock)

    def due(self) -> list[Record]:
        """The records that are to be written now; they are taken as written."""
        found = list(self.ledger.due(self.clock))
        for record in found:
            self.ledger.written(record["uid"], clock=self.clock)
        return found

    @property
    def record(self) -> Record:
        """The only record."""
        (page,) = self.ledger._pages.values()
        return page.record

    def read(self) -> JobRecord:
        """The only record, as the command reads it."""
        return JobRecord.model_validate_json(to_text(self.record))
