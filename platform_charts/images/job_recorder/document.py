"""The record of a job, as JSON: `observability.postmortem.record` reads it.

Times are RFC 3339 in UTC, and empty while unknown. Whoever adds a field leaves `VERSION` alone; whoever changes the meaning
of one increases it.
"""

from __future__ import annotations

from typing import TypedDict

VERSION = 1


class Ended(TypedDict):
    """How a container ended; `signal` is 0 without one."""

    reason: str
    exit_code: int
    signal: int
    message: str
    started: str
    finished: str


class Container(TypedDict):
    """A container with its newest state, `waiting`, `running` or `terminated`, and how it has ended, the newest last."""

    name: str
    restarts: int
    state: str
    reason: str
    message: str
    ended: list[Ended]


class Condition(TypedDict):
    """A condition of an object, in the form that Kubernetes gives it."""

    type: str
    status: str
    reason: str
    message: str
    time: str


class Pod(TypedDict):
    """A pod.

    `kind` is head, worker or submitter. `asked_to_end` is the time of its deletion request, `gone` that of its deletion.
    `node_state` is what its node was when it ended: ready, not ready, cordoned or gone. `disruptions` are the conditions
    DisruptionTarget, which say who evicted it.
    """

    name: str
    uid: str
    kind: str
    cluster: str
    node: str
    zone: str
    instance_type: str
    capacity: str
    node_state: str
    created: str
    scheduled: str
    started: str
    ended: str
    asked_to_end: str
    gone: str
    phase: str
    reason: str
    message: str
    disruptions: list[Condition]
    containers: list[Container]


class Cluster(TypedDict):
    """A RayCluster of the job; a retry makes another one."""

    name: str
    uid: str
    created: str
    gone: str
    state: str
    reason: str
    conditions: list[Condition]


class Workload(TypedDict):
    """Kueue's Workload of the job. `flavors` are the node groups by pod set, `evictions` all that were seen."""

    name: str
    uid: str
    is_active: bool
    flavors: dict[str, str]
    requeues: int
    conditions: list[Condition]
    evictions: list[Condition]


class Transition(TypedDict):
    """A change of the RayJob's status, at the time at which it was seen."""

    time: str
    deployment: str
    driver: str
    reason: str
    message: str


class Event(TypedDict):
    """An Event as the API server aggregates it; `before` is the part of `count` from Events of the same kind that expired."""

    uid: str
    object: str
    type: str
    reason: str
    message: str
    count: int
    before: int
    first: str
    last: str


class Record(TypedDict):
    """A job.

    `ended` is the time at which it was over, and `ending` how: the RayJob's last deployment status, or `Deleted`. `message`
    is the RayJob's, which ends with the last lines of a failed driver. `left_out` counts what `bounds` has
    left out, by kind.
    """

    version: int
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]
    kept_days: float
    created: str
    started: str
    ended: str
    ending: str
    attempts: int
    progress: str
    entrypoint: str
    driver_started: str
    driver_ended: str
    message: str
    transitions: list[Transition]
    clusters: dict[str, Cluster]
    workload: Workload | None
    pods: dict[str, Pod]
    events: dict[str, Event]
    left_out: dict[str, int]
