"""The jobs that hold nodes: whose they are, since when and how far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_RESOURCE, GROUP_LABEL
from platform_charts.jobs.progress import SUBMITTER_CONTAINER, TAIL_LINES, Progress, newest_progress
from platform_charts.jobs.rayjob import ENDED
from platform_charts.jobs.scheduling import JOB_LABEL

_ENDED_PODS = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """An admitted job, or the pods that are left of a deleted one.

    Attributes:
        namespace: its namespace, which is its team's.
        name: its name.
        is_placed: all its pods have nodes; one that has none yet may get any.
        groups: node groups that its pods are on.
        gpus: GPUs that its pods hold.
        since: start of its oldest pod; None while no pod has started.
        progress: what its log says last; None if it says nothing, or was not read.
    """

    namespace: str
    name: str
    is_placed: bool
    groups: frozenset[str]
    gpus: int
    since: datetime | None
    progress: Progress | None = None

    def __str__(self) -> str:
        facts = [
            f"on {', '.join(sorted(self.groups)) or 'no node yet'}",
            f"{self.gpus} GPUs" if self.gpus else "",
            f"since {self.since:%Y-%m-%d %H:%M} UTC" if self.since else "",
            str(self.progress) if self.progress else "",
            f"{self.progress.left} left" if self.progress and self.progress.left else "",
        ]
        return f"job {self.namespace}/{self.name}: {', '.join(filter(None, facts))}"


def running_jobs(
    api: KubernetesApi,
    *,
    groups: frozenset[str] | None = None,
    teams: frozenset[str] = frozenset(),
    has_progress: bool = False,
) -> tuple[RunningJob, ...]:
    """The jobs that are admitted or have pods, on nodes of these groups or of any, sorted by team and name.

    Args:
        api: the API server, as an administrator.
        groups: names of node groups; None for all. Jobs with pods that have no node yet are on any of them.
        teams: names of teams whose jobs are counted in any case.
        has_progress: read the progress of each job from its log.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    pods: dict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for pod in api.items("v1", "Pod", labels=JOB_LABEL):
        if (pod.get("status") or {}).get("phase") not in _ENDED_PODS:
            pods[pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB_LABEL]].append(pod)
    admitted = {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one in api.items_if_served("ray.io/v1", "RayJob")
        if not one["spec"].get("suspend") and not _has_ended(one)
    }
    group_of = {node["metadata"]["name"]: node["metadata"]["labels"].get(GROUP_LABEL, "") for node in _nodes(api)}
    found = [
        _running(key, pods[key], group_of, progress=_progress(api, pods[key]) if has_progress else None)
        for key in sorted({*pods, *admitted})
    ]
    return tuple(
        one
        for one in found
        if groups is None or one.namespace in teams or one.groups & groups or (groups and not one.is_placed)
    )


def queued_jobs(api: KubernetesApi, teams: Collection[str]) -> tuple[str, ...]:
    """Team and name of each job of these teams that waits in a queue, sorted.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    jobs = api.items_if_served("ray.io/v1", "RayJob") if teams else ()
    waiting = (one["metadata"] for one in jobs if one["spec"].get("suspend") and not _has_ended(one))
    return tuple(sorted(f"{one['namespace']}/{one['name']}" for one in waiting if one["namespace"] in teams))


def _nodes(api: KubernetesApi) -> list[Manifest]:
    return api.items("v1", "Node", labels=GROUP_LABEL)


def _has_ended(job: Manifest) -> bool:
    return (job.get("status") or {}).get("jobDeploymentStatus") in ENDED


def _running(
    key: tuple[str, str],
    pods: Sequence[Manifest],
    group_of: Mapping[str, str],
    *,
    progress: Progress | None,
) -> RunningJob:
    namespace, name = key
    starts = [pod["status"]["startTime"] for pod in pods if pod["status"].get("startTime")]
    nodes = [pod["spec"].get("nodeName", "") for pod in pods]
    return RunningJob(
        namespace=namespace,
        name=name,
        is_placed=bool(nodes) and all(nodes),
        groups=frozenset(filter(None, (group_of.get(node, "") for node in nodes))),
        gpus=sum(map(_gpus, pods)),
        since=min(map(datetime.fromisoformat, starts), default=None),
        progress=progress,
    )


def _gpus(pod: Manifest) -> int:
    containers: Iterable[Manifest] = pod["spec"]["containers"]
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0)) for one in containers)


def _progress(api: KubernetesApi, pods: Sequence[Manifest]) -> Progress | None:
    """The newest progress in the driver's log; an unreadable log must not stop the command that only describes it."""
    submitter = next((pod for pod in pods if "ray.io/node-type" not in pod["metadata"]["labels"]), None)
    if submitter is None:
        return None
    name, namespace = (submitter["metadata"][key] for key in ("name", "namespace"))
    try:
        return newest_progress(api.log(name, namespace=namespace, container=SUBMITTER_CONTAINER, tail=TAIL_LINES))
    except (ApiError, ConnectionLostError):
        return None
