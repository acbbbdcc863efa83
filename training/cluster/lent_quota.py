"""A job whose quota is lent waits until elastic jobs have returned it: Kueue would preempt one of them as a whole.

Kueue knows no partial preemption (keps/77-dynamically-sized-jobs, "Non-Goals"). So a job that has to take quota back is submitted with a
gate, which `platform_charts.images.job_sizer` opens once the pods of elastic jobs are gone, or at once where none can return anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from infra.spec.cluster_names import ELASTIC_ANNOTATION, GATE_ANNOTATION, KUEUE_API, RETURN_GATE, RETURN_LABEL
from infra.spec.manifest import Manifest, annotated
from infra.spec.node_labels import GPU_RESOURCE, GROUP_LABEL
from training.cluster.job_manifest import gpus

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def gated_if_lent(api: KubernetesApi, job: Manifest, *, queue: str) -> Manifest:
    """The RayJob, with a gate if it needs GPUs that its team owns and has lent.

    An elastic job never gets one: Kueue 0.19.2 does not see the removal of its gate (jobframework, `ensureOneWorkload`).

    Args:
        api: the cluster.
        job: as it is rendered.
        queue: name of the team's ClusterQueue.
    """
    if not gpus(job) or ELASTIC_ANNOTATION in job["metadata"]["annotations"]:
        return job
    queues, cohorts = (api.items_if_served(KUEUE_API, kind) for kind in ("ClusterQueue", "Cohort"))
    owned, idle = _unused_gpus(queues, cohorts, queue=queue)
    groups = [name for name in _groups(job) or owned if name in owned]
    if any(idle[group] >= gpus(job) for group in groups) or all(owned[group] < gpus(job) for group in groups):
        return job
    gated = annotated(job, GATE_ANNOTATION, RETURN_GATE)
    labels = {**gated["metadata"]["labels"], RETURN_LABEL: "true"}
    return {**gated, "metadata": {**gated["metadata"], "labels": labels}}


def _unused_gpus(
    queues: Iterable[Manifest], cohorts: Iterable[Manifest], *, queue: str
) -> tuple[dict[str, int], dict[str, int]]:
    """GPUs of each group that the queue owns and does not use, and those that nobody uses."""
    owned: dict[str, int] = {}
    idle: dict[str, int] = defaultdict(int)
    for cohort in cohorts:
        for name, amount in _gpus(_flavors(cohort), "nominalQuota").items():
            idle[name] += amount
    for found in queues:
        used = _gpus((found.get("status") or {}).get("flavorsReservation", ()), "total")
        for name, amount in _gpus(_flavors(found), "nominalQuota").items():
            unused = amount - used.get(name, 0)
            idle[name] += unused
            if found["metadata"]["name"] == queue:
                owned[name] = unused
    return owned, idle


def _flavors(found: Manifest) -> list[Manifest]:
    return [flavor for group in found["spec"].get("resourceGroups", ()) for flavor in group["flavors"]]


def _gpus(flavors: Iterable[Manifest], field: str) -> dict[str, int]:
    return {
        flavor["name"]: _count(resource.get(field, "0"))
        for flavor in flavors
        for resource in flavor["resources"]
        if resource["name"] == GPU_RESOURCE
    }


def _count(quantity: str) -> int:
    """A whole number as Kubernetes writes it: thousands of GPUs have a suffix."""
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


def _groups(job: Manifest) -> Sequence[str]:
    """The groups that a job names; none if it names no group."""
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    pod = workers["template"]["spec"]
    if GROUP_LABEL in pod.get("nodeSelector", {}):
        return (pod["nodeSelector"][GROUP_LABEL],)
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = [one for term in required.get("nodeSelectorTerms", ()) for one in term.get("matchExpressions", ())]
    return [name for one in terms if one["key"] == GROUP_LABEL for name in one["values"]]
