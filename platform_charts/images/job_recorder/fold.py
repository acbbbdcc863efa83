"""Folds what the API server says of a job into its record; pure functions.

Each returns the record that it was given where nothing has changed, so that a caller compares identities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .document import VERSION, Cluster, Condition, Event, Record, Transition, Workload
from .text import LONGEST_MESSAGE, LONGEST_NAME, LONGEST_REASON, both, head

Object = Mapping[str, Any]
"""An object as JSON from the API server."""

ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
"""Deployment states of a RayJob that is over (KubeRay 1.6.2, rayjob_types.go, `IsJobDeploymentTerminal`)."""

DELETED = "Deleted"

PREFIX = "ray-train-platform/"
JOB_LABEL = f"{PREFIX}job"
KEEP_ANNOTATION = f"{PREFIX}keep-days"
PROGRESS_ANNOTATION = f"{PREFIX}progress"

_KEPT_DAYS = 14.0
"""Days for which the record of a job is kept whose RayJob does not say so."""

_LABELS = (
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
    f"{PREFIX}team",
    f"{PREFIX}kind",
    f"{PREFIX}gpu",
)
_MOST_CONDITIONS = 12
_MOST_EVICTIONS = 20
_MOST_CLUSTERS = 10

_REPLACED = "WorkloadSliceReplaced"
"""Why a Workload is finished whose elastic job has another size now (Kueue 0.19.2, workload_types.go)."""


def new_record(job: Object) -> Record:
    """The record of a RayJob of which nothing but its metadata is known."""
    metadata = job["metadata"]
    labels = metadata.get("labels") or {}
    return Record(
        version=VERSION,
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        labels={key: head(labels[key], LONGEST_NAME) for key in _LABELS if key in labels},
        kept_days=_kept_days(metadata.get("annotations") or {}),
        created=metadata["creationTimestamp"],
        started="",
        ended="",
        ending="",
        attempts=0,
        progress="",
        entrypoint=head((job.get("spec") or {}).get("entrypoint"), LONGEST_REASON),
        driver_started="",
        driver_ended="",
        message="",
        transitions=[],
        clusters={},
        workload=None,
        pods={},
        events={},
        left_out={},
    )


def with_job(record: Record, job: Object, *, now: str) -> Record:
    """The record after the RayJob was seen at the time `now`."""
    status, annotations = job.get("status") or {}, job["metadata"].get("annotations") or {}
    info = status.get("rayJobInfo") or {}
    is_over = status.get("jobDeploymentStatus") in ENDED
    after: Record = {
        **record,
        "started": status.get("startTime") or record["started"],
        "ended": (record["ended"] or status.get("endTime") or now) if is_over else "",
        "ending": status["jobDeploymentStatus"] if is_over else "",
        "attempts": status.get("failed", 0) + status.get("succeeded", 0),
        "progress": head(annotations.get(PROGRESS_ANNOTATION)) or record["progress"],
        "driver_started": info.get("startTime") or record["driver_started"],
        "driver_ended": info.get("endTime") or record["driver_ended"],
        "message": both(status.get("message")) or record["message"],
        "transitions": _transitions(record["transitions"], status, now=now),
    }
    return record if after == record else after


def without_job(record: Record, *, now: str) -> Record:
    """The record after the RayJob was deleted; a job that was over stays as it ended."""
    return record if record["ended"] else {**record, "ended": now, "ending": DELETED}


def with_cluster(record: Record, cluster: Object, *, gone: str = "") -> Record:
    """The record after a RayCluster of the job was seen, or was deleted at the time `gone`."""
    metadata, status = cluster["metadata"], cluster.get("status") or {}
    before = record["clusters"].get(metadata["uid"])
    entry = Cluster(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        gone=gone or (before["gone"] if before else ""),
        state=head(status.get("state")),
        reason=head(status.get("reason"), LONGEST_MESSAGE),
        conditions=conditions_of(cluster),
    )
    if entry == before:
        return record
    known = {**record["clusters"], entry["uid"]: entry}
    newest = sorted(known.values(), key=lambda one: one["created"])[-_MOST_CLUSTERS:]
    return {**record, "clusters": {one["uid"]: one for one in newest}}


def with_workload(record: Record, workload: Object) -> Record:
    """The record after the job's Workload was seen; unchanged by one of another size that an elastic job had before."""
    metadata, status = workload["metadata"], workload.get("status") or {}
    before, conditions = record["workload"], conditions_of(workload)
    if any(one["reason"] == _REPLACED for one in conditions):
        return record
    evictions = list(before["evictions"]) if before else []
    for one in conditions:
        if one["type"] == "Evicted" and one["status"] == "True" and one not in evictions:
            evictions.append(one)
    assignments = (status.get("admission") or {}).get("podSetAssignments") or ()
    flavors = {
        head(one["name"], LONGEST_NAME): head(next(iter((one.get("flavors") or {}).values()), ""), LONGEST_NAME)
        for one in assignments[:_MOST_CONDITIONS]
    }
    entry = Workload(
        name=metadata["name"],
        uid=metadata["uid"],
        is_active=(workload.get("spec") or {}).get("active", True),
        flavors=flavors or (before["flavors"] if before else {}),
        requeues=max((status.get("requeueState") or {}).get("count") or 0, before["requeues"] if before else 0),
        conditions=conditions,
        evictions=evictions[-_MOST_EVICTIONS:],
    )
    return record if entry == before else {**record, "workload": entry}


def with_event(record: Record, event: Object) -> Record:
    """The record after an Event was seen; one that repeats an expired Event is added to it."""
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    metadata = event["metadata"]
    created = metadata.get("creationTimestamp") or ""
    first = event.get("firstTimestamp") or event.get("eventTime") or created
    entry = Event(
        uid=metadata["uid"],
        object=f"{head(about.get('kind'))} {head(about.get('name'), LONGEST_NAME)}",
        type=head(event.get("type")),
        reason=head(event.get("reason")),
        message=head(event.get("message"), LONGEST_MESSAGE),
        count=event.get("count") or series.get("count") or 1,
        before=0,
        first=first,
        last=event.get("lastTimestamp") or series.get("lastObservedTime") or first,
    )
    same = [one for one in record["events"].values() if _is_same(one, entry)]
    kept = {uid: one for uid, one in record["events"].items() if one not in same}
    for one in same:
        is_update = one["uid"] == entry["uid"]
        earlier = one["before"] if is_update else one["count"]
        entry["before"] += earlier
        entry["count"] += earlier
        entry["first"] = min(one["first"], entry["first"])
        entry["last"] = max(one["last"], entry["last"])
    return record if same == [entry] else {**record, "events": {**kept, entry["uid"]: entry}}


def conditions_of(found: Object) -> list[Condition]:
    """The conditions of an object."""
    known = (found.get("status") or {}).get("conditions") or ()
    return [
        Condition(
            type=head(one.get("type"), LONGEST_NAME),
            status=head(one.get("status"), 16),
            reason=head(one.get("reason"), LONGEST_NAME),
            message=head(one.get("message"), LONGEST_MESSAGE),
            time=head(one.get("lastTransitionTime"), 40),
        )
        for one in known[:_MOST_CONDITIONS]
    ]


def _is_same(one: Event, other: Event) -> bool:
    keys = ("object", "type", "reason", "message")
    return one["uid"] == other["uid"] or all(one[key] == other[key] for key in keys)  # type: ignore[literal-required]


def _transitions(before: list[Transition], status: Object, *, now: str) -> list[Transition]:
    """The transitions with the present state, if it is another one than the newest."""
    entry = Transition(
        time=now,
        deployment=head(status.get("jobDeploymentStatus"), 64),
        driver=head(status.get("jobStatus"), 64),
        reason=head(status.get("reason"), LONGEST_NAME),
        message=head(status.get("message")),
    )
    if not (entry["deployment"] or entry["driver"]) or (before and {**before[-1], "time": now} == entry):
        return before
    return [*before, entry]


def _kept_days(annotations: Mapping[str, str]) -> float:
    try:
        days = float(annotations.get(KEEP_ANNOTATION, _KEPT_DAYS))
    except ValueError:
        return _KEPT_DAYS
    return days if 0 <= days <= 3650 else _KEPT_DAYS
