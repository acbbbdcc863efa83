"""What a job holds on the cluster and what that costs, from the cluster's own objects.

Counted are the head and the workers, at the price of their parts of nodes (`platform_charts.jobs.price`), for the time that they have a
node: while it pulls their image, while the driver runs, and until the pods are gone. A job that waits in the queue holds nothing. While
the pods exist, they say since when. Once they are gone, the Workload does: how long the queue had admitted the job, which includes the
start of nodes for it. The submitter's pod, a twentieth of a core, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from infra.spec.cluster_names import LAST_SCRAPES_SECONDS
from infra.spec.manifest import Manifest
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.price import PodPrice, Wanted, price_of_pod
from platform_charts.jobs.rayjob import ENDED
from platform_charts.jobs.request import Target
from training.cluster.job_manifest import admitted_group, gpus, options_of, worker_pods
from training.cluster.node_room import requests_of
from training.cluster.objects import conditions, has_condition
from training.cluster.state import Observation

Role = Literal["head", "worker"]
Evidence = Literal["pods", "admission", "nothing"]

_ROLE_LABEL = "ray.io/node-type"


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The pods of one role.

    Attributes:
        count: number of pods that the job has at a time.
        price: of one of them.
        seconds: for which they were held, summed over the pods.
    """

    role: Role
    count: int
    price: PodPrice
    seconds: float

    @property
    def dollars(self) -> float | None:
        """US dollars; None without a price."""
        return None if self.price.usd_per_hour is None else self.price.usd_per_hour * self.seconds / 3600


@dataclass(frozen=True, kw_only=True)
class JobCost:
    """What a job held.

    Attributes:
        holdings: by role; none for a job that has held nothing.
        evidence: what says for how long.
        idle_share: the part of the time in which no driver ran, from 0 to 1; None where only the last of several attempts is known.
    """

    holdings: tuple[Holding, ...]
    evidence: Evidence
    idle_share: float | None

    @property
    def dollars(self) -> float | None:
        """US dollars; None if a role has no price."""
        known = [one.dollars for one in self.holdings]
        return sum(one for one in known if one is not None) if None not in known else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the prices assume, and why some are missing."""
        return tuple(dict.fromkeys(one.price.note for one in self.holdings if one.price.note))


def job_cost(seen: Observation, target: Target, *, now: datetime) -> JobCost:
    """The cost of a job up to now, or to its end.

    Args:
        seen: its objects.
        target: the stack.
        now: the current time, with its zone.
    """
    assert seen.job is not None, "the job exists"
    past, current = _admitted_seconds(seen, now)
    is_current = _is_current(seen)
    pods = list(_ray_pods(seen.pods)) if is_current else []
    if past == 0 and not (pods if is_current else current):
        return JobCost(holdings=(), evidence="nothing", idle_share=None)
    spec = seen.job["spec"]["rayClusterSpec"]
    roles: tuple[tuple[Role, int, Manifest], ...] = (
        ("head", 1, spec["headGroupSpec"]["template"]),
        ("worker", worker_pods(seen.job), spec["workerGroupSpecs"][0]["template"]),
    )
    holdings = tuple(
        Holding(
            role=role,
            count=count,
            price=_price(role, template, seen, target),
            seconds=past * count + (_held(pods, role, now) if is_current else current * count),
        )
        for role, count, template in roles
    )
    held = holdings[0].seconds
    is_whole = past == 0 and _attempts(seen.job) == 1
    return JobCost(
        holdings=holdings,
        evidence="pods" if pods else "admission",
        idle_share=_idle_share(seen.job, held, now) if is_whole and held else None,
    )


def _price(role: Role, template: Manifest, seen: Observation, target: Target) -> PodPrice:
    assert seen.job is not None
    cpus, memory_gib, of_gpus = requests_of(template)
    wanted = Wanted(cpus=cpus, memory_gib=memory_gib, gpus=of_gpus)
    if role == "head" or gpus(seen.job) == 0:
        return price_of_pod(wanted, None, target)
    name = admitted_group(seen.workload) or options_of(seen.job).group
    group = _group_named(name, target)
    if group is None:
        said = f"group {name} is not in the stack" if name else "the queue no longer says which group the job ran on"
        return PodPrice(instance_type="", usd_per_hour=None, note=said)
    return price_of_pod(wanted, group, target)


def _group_named(name: str | None, target: Target) -> GpuGroupOutput | None:
    return next((one for one in target.outputs.gpu_groups if one.name == name), None)


def _admitted_seconds(seen: Observation, now: datetime) -> tuple[float, float]:
    """For how long the queue had admitted the job before its present admission, and for how long in it.

    A retry by KubeRay stays within an admission; an eviction ends it, and Kueue keeps the sum of the ended ones
    (apis/kueue/v1beta2/workload_types.go, `accumulatedPastExecutionTimeSeconds`). Without a Workload, the last attempt is known.
    """
    assert seen.job is not None
    until = _end(seen.job)
    until = now if until is None else min(now, until)
    if seen.workload is None:
        return 0.0, _since((seen.job.get("status") or {}).get("startTime"), until)
    past = float((seen.workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds", 0))
    if not has_condition(seen.workload, "Admitted"):
        return past, 0.0
    (admitted,) = [one for one in conditions(seen.workload) if one["type"] == "Admitted"]
    return past, _since(admitted["lastTransitionTime"], until)


def _is_current(seen: Observation) -> bool:
    """Whether the job's pods belong to an admission that goes on; those of one that has ended are only terminating."""
    assert seen.job is not None
    is_admitted = seen.workload is None or has_condition(seen.workload, "Admitted")
    return is_admitted and _end(seen.job) is None


def _end(job: Manifest) -> datetime | None:
    """When the pods of an ended job are gone; None while it has not ended."""
    status = job.get("status") or {}
    if status.get("jobDeploymentStatus") not in ENDED:
        return None
    ended = status.get("endTime") or job["metadata"]["creationTimestamp"]  # one that KubeRay never started has no end
    return datetime.fromisoformat(ended) + timedelta(seconds=LAST_SCRAPES_SECONDS)


def _attempts(job: Manifest) -> int:
    """How often KubeRay has started the job's cluster; it counts an attempt when it has ended."""
    status = job.get("status") or {}
    ended = int(status.get("failed") or 0) + int(status.get("succeeded") or 0)
    return ended + (status.get("jobDeploymentStatus") not in ENDED)


def _ray_pods(pods: Sequence[Manifest]) -> Iterator[Manifest]:
    """Those of the head and the workers that have a node."""
    for pod in pods:
        if _ROLE_LABEL in pod["metadata"].get("labels", {}) and _scheduled(pod) is not None:
            yield pod


def _held(pods: Sequence[Manifest], role: Role, now: datetime) -> float:
    """Seconds for which the pods of a role have had their nodes."""
    return sum(_since(_scheduled(pod), _finished(pod) or now) for pod in pods if _is_of(pod, role))


def _is_of(pod: Manifest, role: Role) -> bool:
    return bool(pod["metadata"]["labels"][_ROLE_LABEL] == role)


def _scheduled(pod: Manifest) -> str | None:
    """When a pod got its node."""
    times = [
        one["lastTransitionTime"]
        for one in conditions(pod)
        if one["type"] == "PodScheduled" and one["status"] == "True"
    ]
    return times[0] if times else None


def _finished(pod: Manifest) -> datetime | None:
    """When the last container of a pod that has ended did; it then holds nothing."""
    status = pod.get("status") or {}
    if status.get("phase") not in {"Succeeded", "Failed"}:
        return None
    states = (one.get("state", {}).get("terminated", {}) for one in status.get("containerStatuses", ()))
    times = [datetime.fromisoformat(one["finishedAt"]) for one in states if one.get("finishedAt")]
    return max(times, default=None)


def _idle_share(job: Manifest, held_seconds: float, now: datetime) -> float:
    """The part of the head's time in which no driver ran."""
    info = (job.get("status") or {}).get("rayJobInfo") or {}
    ended = info.get("endTime")
    driven = _since(info.get("startTime"), now if ended is None else datetime.fromisoformat(ended))
    return max(0.0, 1.0 - driven / held_seconds)


def _since(start: str | None, end: datetime) -> float:
    return 0.0 if start is None else max(0.0, (end - datetime.fromisoformat(start)).total_seconds())
