"""The record of a job that `platform_charts.images.job_recorder` keeps, as `platform_charts/images/job_recorder/document.py` writes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Time = Annotated[datetime | None, BeforeValidator(lambda value: value or None)]
"""A time in UTC; None where it is not known."""


class _Part(BaseModel):
    """A part of a record. Fields of a newer recorder are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Ended(_Part):
    """How a container ended; `signal` is 0 without one."""

    reason: str
    exit_code: int
    signal: int
    message: str
    started: Time
    finished: Time

    @property
    def is_bad(self) -> bool:
        """Whether it failed or was killed."""
        return self.exit_code != 0 or self.signal != 0

    def __str__(self) -> str:
        """E.g. `OOMKilled, exit code 137`."""
        code = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return f"{self.reason}, {code}" if self.reason not in {"", "Error"} else code


class Container(_Part):
    """A container with its newest state, and how it ended: the first time and the last."""

    name: str
    restarts: int
    state: str
    reason: str
    message: str
    ended: tuple[Ended, ...]


class Condition(_Part):
    """A condition of an object."""

    type: str
    status: str
    reason: str
    message: str
    time: Time


class PodRecord(_Part):
    """A pod; `asked_to_end` is the time of its deletion request, `gone` that of its deletion, `ended` that of its containers' end."""

    name: str
    uid: str
    kind: str
    cluster: str
    node: str
    zone: str
    instance_type: str
    capacity: str
    node_state: str
    created: Time
    scheduled: Time
    started: Time
    ended: Time
    asked_to_end: Time
    gone: Time
    phase: str
    reason: str
    message: str
    disruptions: tuple[Condition, ...]
    containers: tuple[Container, ...]

    @property
    def ends(self) -> list[tuple[Container, Ended]]:
        """The failed ends of its containers before it was asked to end, oldest first."""
        found = [
            (container, end)
            for container in self.containers
            for end in container.ended
            if end.is_bad and not (self.asked_to_end and end.finished and end.finished > self.asked_to_end)
        ]
        return sorted(found, key=lambda one: str(one[1].finished))

    @property
    def state(self) -> str:
        """What became of it, in words."""
        if self.ends:
            return str(self.ends[0][1])
        if self.disruptions:
            return self.disruptions[0].reason
        if self.reason:
            return self.reason
        waiting = next((one.reason for one in self.containers if one.state == "waiting" and one.reason), "")
        if self.gone is not None:
            return "deleted"
        return waiting or self.phase.lower() or "created"


class ClusterRecord(_Part):
    """A RayCluster of the job."""

    name: str
    uid: str
    created: Time
    gone: Time
    state: str
    reason: str
    conditions: tuple[Condition, ...]


class WorkloadRecord(_Part):
    """Kueue's Workload of the job."""

    name: str
    is_active: bool
    flavors: dict[str, str]
    requeues: int
    conditions: tuple[Condition, ...]
    evictions: tuple[Condition, ...]


class Transition(_Part):
    """A change of the RayJob's status, when it was seen."""

    time: Time
    deployment: str
    driver: str
    reason: str
    message: str


class EventRecord(_Part):
    """An Event, as often as it was seen."""

    object: str
    type: str
    reason: str
    message: str
    count: int
    first: Time
    last: Time


class JobRecord(_Part):
    """A job; `ending` is KubeRay's last deployment status, or `Deleted`, and empty while the job is not over.

    Attributes:
        is_complete: nothing more will be added.
    """

    version: Literal[1]
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]
    kept_days: float
    created: Time
    started: Time
    ended: Time
    ending: str
    attempts: int
    progress: str
    entrypoint: str
    driver_started: Time
    driver_ended: Time
    message: str
    transitions: tuple[Transition, ...]
    clusters: dict[str, ClusterRecord]
    workload: WorkloadRecord | None
    pods: dict[str, PodRecord]
    events: dict[str, EventRecord]
    left_out: dict[str, int]
    is_complete: bool = Field(default=False)

    @property
    def newest_transition(self) -> Transition | None:
        """The last change of its status; None before the first."""
        return self.transitions[-1] if self.transitions else None

    @property
    def last_pods(self) -> list[PodRecord]:
        """The pods of the last attempt: those of the newest cluster, and the submitters since then."""
        named = [pod for pod in self.pods.values() if pod.cluster]
        newest = max(named, key=lambda pod: str(pod.created), default=None)
        if newest is None:
            return list(self.pods.values())
        first = min((str(pod.created) for pod in named if pod.cluster == newest.cluster), default="")
        return [
            pod
            for pod in self.pods.values()
            if pod.cluster == newest.cluster or (not pod.cluster and str(pod.created) >= first)
        ]
