"""The jobs of a cluster that run or wait, as the calendar needs them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from infra.kube.api import KubernetesApi
from infra.lifecycle.capacity.placing import Job
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_RESOURCE, GROUP_LABEL
from platform_charts.jobs.rayjob import ENDED


def cluster_jobs(api: KubernetesApi) -> tuple[Job, ...]:
    """The jobs that run, and those that wait, in the order of the queue: by priority, then by age. Stopped jobs do neither.

    Args:
        api: the API server, as an administrator.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    workloads = {
        owner["uid"]: workload
        for workload in api.items_if_served(KUEUE_API, "Workload")
        for owner in workload["metadata"].get("ownerReferences", ())
    }
    jobs = [
        (one, workloads.get(one["metadata"]["uid"]))
        for one in api.items_if_served("ray.io/v1", "RayJob")
        if (one.get("status") or {}).get("jobDeploymentStatus") not in ENDED
    ]
    return tuple(job_of(*pair) for pair in sorted(filter(_is_active, jobs), key=_queue_order))


def _is_active(pair: tuple[Manifest, Manifest | None]) -> bool:
    _, workload = pair
    return workload is None or workload["spec"].get("active", True)


def _queue_order(pair: tuple[Manifest, Manifest | None]) -> tuple[int, str, str, str]:
    job, workload = pair
    priority = int((workload or {}).get("spec", {}).get("priority") or 0)
    metadata = job["metadata"]
    return -priority, str(metadata.get("creationTimestamp", "")), metadata["namespace"], metadata["name"]


def job_of(job: Manifest, workload: Manifest | None) -> Job:
    """A job from its RayJob and its Workload; the latter is None before Kueue has seen the job.

    Teams may apply RayJobs of their own, with any number of worker groups, and without a deadline.
    """
    spec = job["spec"]
    workers = (spec.get("rayClusterSpec") or {}).get("workerGroupSpecs") or ()
    admission = ((workload or {}).get("status") or {}).get("admission") or {}
    # Kueue names the pod set of a worker group after it, in lower case.
    names = {str(one["groupName"]).lower() for one in workers}
    assigned = [
        str(group)
        for one in admission.get("podSetAssignments", ())
        if one["name"] in names
        for group in one.get("flavors", {}).values()
    ]
    seconds = spec.get("activeDeadlineSeconds")
    requested = [group for one in workers for group in _requested(one["template"]["spec"])]
    return Job(
        team=job["metadata"]["namespace"],
        name=job["metadata"]["name"],
        groups=tuple(dict.fromkeys(assigned or requested)),
        state="runs" if assigned else "waits",
        nodes=sum(_replicas(one) for one in workers),
        gpus=sum(_replicas(one) * _gpus(one["template"]["spec"]) for one in workers),
        since=_since(job, workload) if assigned else None,
        deadline=None if seconds is None else timedelta(seconds=seconds),
    )


def _replicas(worker_group: Manifest) -> int:
    """Pods of a worker group."""
    return int(worker_group.get("replicas", 0)) * int(worker_group.get("numOfHosts", 1))


def _gpus(pod: Manifest) -> int:
    limits = (one.get("resources", {}).get("limits", {}) for one in pod.get("containers", ()))
    return sum(int(one.get(GPU_RESOURCE, 0)) for one in limits)


def _requested(pod: Manifest) -> Iterator[str]:
    """The groups that the workers may use: by node selector if there is one, else by affinity."""
    selected = pod.get("nodeSelector", {}).get(GROUP_LABEL)
    if selected:
        yield selected
        return
    affinity = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in affinity.get("nodeSelectorTerms", ()):
        for expression in term.get("matchExpressions", ()):
            if expression["key"] == GROUP_LABEL and expression["operator"] == "In":
                yield from expression["values"]


def _since(job: Manifest, workload: Manifest | None) -> datetime | None:
    """When the deadline of the current attempt began to count: the start that KubeRay noted, else the admission."""
    noted = (job.get("status") or {}).get("startTime")
    admitted = next(
        (
            one["lastTransitionTime"]
            for one in ((workload or {}).get("status") or {}).get("conditions", ())
            if one["type"] == "Admitted" and one["status"] == "True"
        ),
        None,
    )
    text = noted or admitted
    return datetime.fromisoformat(text) if text else None
