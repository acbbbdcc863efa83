"""Folds pods and their nodes into a job's record; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from .document import Container, Ended, Pod, Record
from .fold import PREFIX, Object, conditions_of
from .text import LONGEST_MESSAGE, LONGEST_NAME, head

_MOST_CONTAINERS = 8
_MOST_ENDS = 3
"""Ends of a container that are kept: the first, which is the cause, and the newest."""

_CLUSTER_LABEL, _TYPE_LABEL = "ray.io/cluster", "ray.io/node-type"
_ZONE, _INSTANCE_TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
_CAPACITY = f"{PREFIX}capacity"


class NodeFacts(NamedTuple):
    """What is recorded of a pod's node.

    Attributes:
        zone: its availability zone.
        instance_type: its EC2 instance type.
        capacity: how its capacity was bought, e.g. `spot`.
        state: ready, not ready, cordoned, or gone.
    """

    zone: str = ""
    instance_type: str = ""
    capacity: str = ""
    state: str = ""


def node_facts(node: Object | None) -> NodeFacts:
    """The facts of a node; None is one that does not exist."""
    if node is None:
        return NodeFacts(state="gone")
    labels = node["metadata"].get("labels") or {}
    ready = next((one["status"] for one in conditions_of(node) if one["type"] == "Ready"), "")
    is_cordoned = (node.get("spec") or {}).get("unschedulable", False)
    return NodeFacts(
        zone=head(labels.get(_ZONE), LONGEST_NAME),
        instance_type=head(labels.get(_INSTANCE_TYPE), LONGEST_NAME),
        capacity=head(labels.get(_CAPACITY), LONGEST_NAME),
        state="not ready" if ready != "True" else "cordoned" if is_cordoned else "ready",
    )


def with_pod(record: Record, pod: Object, *, gone: str = "") -> Record:
    """The record after a pod of the job was seen, or was deleted at the time `gone`."""
    uid = pod["metadata"]["uid"]
    before = record["pods"].get(uid)
    entry = _entry(pod, before, gone=gone)
    return record if entry == before else {**record, "pods": {**record["pods"], uid: entry}}


def with_node(record: Record, uid: str, facts: NodeFacts) -> Record:
    """The record with what is known of a pod's node; what a node that is gone was, stays known."""
    before = record["pods"][uid]
    entry: Pod = {
        **before,
        "zone": facts.zone or before["zone"],
        "instance_type": facts.instance_type or before["instance_type"],
        "capacity": facts.capacity or before["capacity"],
        "node_state": facts.state,
    }
    return record if entry == before else {**record, "pods": {**record["pods"], uid: entry}}


def has_ended(pod: Pod) -> bool:
    """Whether a pod runs no more."""
    return bool(pod["gone"] or pod["ended"])


def ends(pod: Pod) -> tuple[object, ...]:
    """What must not be lost of a pod: a change of it is written at once."""
    return (
        has_ended(pod),
        pod["reason"],
        len(pod["disruptions"]),
        sum(len(one["ended"]) for one in pod["containers"]),
    )


def _entry(pod: Object, before: Pod | None, *, gone: str) -> Pod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels, conditions = metadata.get("labels") or {}, conditions_of(pod)
    containers = _containers(status, before)
    phase = head(status.get("phase"))
    finished = [end["finished"] for one in containers for end in one["ended"][-1:]]
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        kind=head(labels.get(_TYPE_LABEL, "submitter"), LONGEST_NAME),
        cluster=head(labels.get(_CLUSTER_LABEL), LONGEST_NAME),
        node=head((pod.get("spec") or {}).get("nodeName"), LONGEST_NAME) or (before["node"] if before else ""),
        zone=before["zone"] if before else "",
        instance_type=before["instance_type"] if before else "",
        capacity=before["capacity"] if before else "",
        node_state=before["node_state"] if before else "",
        created=metadata["creationTimestamp"],
        scheduled=next(
            (one["time"] for one in conditions if one["type"] == "PodScheduled" and one["status"] == "True"), ""
        ),
        started=head(status.get("startTime"), 40),
        ended=max(finished, default=gone) if phase in {"Succeeded", "Failed"} else "",
        asked_to_end=_asked_to_end(metadata),
        gone=gone or (before["gone"] if before else ""),
        phase=phase,
        reason=head(status.get("reason")),
        message=head(status.get("message"), LONGEST_MESSAGE),
        disruptions=[one for one in conditions if one["type"] == "DisruptionTarget" and one["status"] == "True"],
        containers=containers,
    )


def _asked_to_end(metadata: Object) -> str:
    """The time of the deletion request: the API server adds the grace period to it."""
    deadline = metadata.get("deletionTimestamp")
    if not deadline:
        return ""
    seconds = metadata.get("deletionGracePeriodSeconds") or 0
    return f"{datetime.fromisoformat(deadline) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def _containers(status: Object, before: Pod | None) -> list[Container]:
    known = {one["name"]: one for one in before["containers"]} if before else {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    if not statuses:  # the API server's own deletion of a pod on a lost node says nothing of its containers
        return list(known.values())
    return [_container(one, known.get(head(one["name"], LONGEST_NAME))) for one in statuses[:_MOST_CONTAINERS]]


def _container(status: Object, before: Container | None) -> Container:
    state: dict[str, Any] = status.get("state") or {}
    kind = next(iter(state), "")
    details = state.get(kind) or {}
    seen = ((status.get("lastState") or {}).get("terminated"), state.get("terminated"))
    ended = list(before["ended"]) if before else []
    for one in seen:
        if one is not None and (end := _ended(one)) not in ended:
            ended.append(end)
    return Container(
        name=head(status["name"], LONGEST_NAME),
        restarts=status.get("restartCount") or 0,
        state=head(kind, 16),
        reason=head(details.get("reason")),
        message=head(details.get("message"), LONGEST_MESSAGE),
        ended=_first_and_newest(ended),
    )


def _first_and_newest(ended: Sequence[Ended]) -> list[Ended]:
    return list(ended) if len(ended) <= _MOST_ENDS else [ended[0], *ended[-(_MOST_ENDS - 1) :]]


def _ended(terminated: Object) -> Ended:
    return Ended(
        reason=head(terminated.get("reason")),
        exit_code=terminated.get("exitCode") or 0,
        signal=terminated.get("signal") or 0,
        message=head(terminated.get("message"), LONGEST_MESSAGE),
        started=head(terminated.get("startedAt"), 40),
        finished=head(terminated.get("finishedAt"), 40),
    )
