"""What the objects of the cluster say of elastic jobs and of quota; pure functions.

Fields are those of Kueue 0.19.2 (apis/kueue/v1beta2) and KubeRay 1.6.2 (apis/ray/v1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from .sizing import Claim, Key, Quota, Sized
from .steps import Holding, WorkerPod

Object = Mapping[str, Any]

ELASTIC = "kueue.x-k8s.io/elastic-job"
GATE_ANNOTATION = "kueue.x-k8s.io/admission-gated-by"
GATE = "ray-train-platform/quota-return"
"""Value of the annotation, and key of a label, of a RayJob that waits until elastic jobs have returned quota."""

SIZES = "ray-train-platform/worker-pods"
"""Annotation of an elastic RayJob: the numbers of worker pods that its run can use, ascending."""

MOST = "ray-train-platform/most-worker-pods"
"""Annotation of an elastic RayJob: the most worker pods that its user lets it have; absent without a limit."""

GROUP_LABEL = "ray.io/group"
COUNTED = frozenset({"cpu", "memory", "nvidia.com/gpu"})
"""Resources that have quotas (`platform_charts.objects.shares`)."""

_PATIENCE_SECONDS = 30.0
"""Kueue admits what fits within a second."""

_OVER = frozenset({"Succeeded", "Failed"})


def quota_of(queues: Iterable[Object], cohorts: Iterable[Object], workloads: Iterable[Object]) -> Quota:
    """The quota of the cohort that all queues share, and what Workloads hold of it.

    The status of a queue has that as well, later: a job that was just admitted would neither wait nor count.
    """
    used: dict[str, dict[Key, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for workload in workloads:
        if _has(workload, "QuotaReserved") and not _has(workload, "Finished") and "admission" in workload["status"]:
            admission = workload["status"]["admission"]
            for key, amount in _held(workload).items():
                used[admission["clusterQueue"]][key] += amount
    own: dict[str, dict[Key, Decimal]] = {}
    limits: dict[str, dict[Key, Decimal]] = {}
    idle: dict[Key, Decimal] = defaultdict(Decimal)
    for cohort in cohorts:
        for key, resource in _quotas(cohort):
            idle[key] += parse_quantity(resource["nominalQuota"])
    for queue in queues:
        name = queue["metadata"]["name"]
        own[name], limits[name] = {}, {}
        for key, resource in _quotas(queue):
            own[name][key] = parse_quantity(resource["nominalQuota"]) - used[name][key]
            idle[key] += own[name][key]
            if "borrowingLimit" in resource:
                limits[name][key] = parse_quantity(resource["borrowingLimit"])
    return Quota(own=own, idle=idle, limits=limits)


def holding_of(
    job: Object, workloads: Sequence[Object], cluster: Object | None, pods: Iterable[Object], *, now: datetime
) -> Holding:
    """What an elastic job has.

    Args:
        job: the RayJob.
        workloads: those of the job, whatever their state.
        cluster: its RayCluster; None without.
        pods: those of its RayCluster.
        now: the time, with its zone.
    """
    group = _group(job["spec"]["rayClusterSpec"])
    slice_ = admitted_slice(workloads)
    return Holding(
        sizes=_sizes(job, group),
        asked=group["replicas"],
        admitted=None if slice_ is None else _count(slice_, group["groupName"]),
        cluster=None if cluster is None else _group(cluster["spec"])["replicas"],
        pods=[
            WorkerPod(
                name=pod["metadata"]["name"],
                node=pod["spec"].get("nodeName", ""),
                created=pod["metadata"]["creationTimestamp"],
                is_ready=_has(pod, "Ready"),
                is_going="deletionTimestamp" in pod["metadata"],
            )
            for pod in pods
            if pod["metadata"]["labels"].get(GROUP_LABEL) == group["groupName"]
            and (pod.get("status") or {}).get("phase") not in _OVER
        ],
        has_waited=any(
            not _has(one, "QuotaReserved")
            and not _has(one, "Finished")
            and (now - datetime.fromisoformat(one["metadata"]["creationTimestamp"])).total_seconds() > _PATIENCE_SECONDS
            for one in workloads
        ),
    )


def sized_of(job: Object, holding: Holding, workloads: Sequence[Object]) -> Sized | None:
    """An elastic job as far as its size depends on others; None while it holds no quota."""
    slice_ = admitted_slice(workloads)
    if slice_ is None or holding.admitted is None:
        return None
    assigned = _assigned(slice_, _group(job["spec"]["rayClusterSpec"])["groupName"])
    status = job.get("status") or {}
    staying = [pod for pod in holding.pods if not pod.is_going]
    return Sized(
        name=name_of(job),
        queue=slice_["status"]["admission"]["clusterQueue"],
        sizes=holding.sizes,
        pods=holding.admitted,
        needs={
            (flavor, resource): parse_quantity(assigned["resourceUsage"][resource]) / assigned["count"]
            for resource, flavor in assigned["flavors"].items()
            if parse_quantity(assigned.get("resourceUsage", {}).get(resource, "0")) > 0
        },
        may_grow=status.get("jobDeploymentStatus") == "Running"
        and status.get("jobStatus") == "RUNNING"
        and len(staying) == holding.admitted
        and all(pod.is_ready for pod in staying),
    )


def admitted_slice(workloads: Sequence[Object]) -> Object | None:
    """The newest Workload of a job that holds quota and is not about to lose it."""
    holding = [
        one
        for one in workloads
        if _has(one, "QuotaReserved")
        and not _has(one, "Finished")
        and not _has(one, "Evicted")
        and "admission" in one["status"]
    ]
    return max(holding, key=lambda one: str(one["metadata"]["creationTimestamp"]), default=None)


def claims_of(
    workloads: Iterable[Object],
    *,
    queues: Mapping[tuple[str, str], str],
    flavors: Mapping[str, Mapping[str, str]],
    elastic: Iterable[str],
) -> list[Claim]:
    """The jobs that wait for quota.

    Args:
        workloads: those of all jobs.
        queues: ClusterQueue of each LocalQueue, by namespace and name.
        flavors: labels of the nodes of each ResourceFlavor.
        elastic: UIDs of the elastic jobs that hold quota, whose next slice is no claim.
    """
    held = set(elastic)
    return [
        Claim(
            name=f"{one['metadata']['namespace']}/{owner['name']}",
            queue=queue,
            order=(-one["spec"].get("priority", 0), one["metadata"]["creationTimestamp"]),
            choices=_choices(one, flavors),
        )
        for one in workloads
        if _waits(one)
        and (owner := next(iter(one["metadata"].get("ownerReferences", ())), None)) is not None
        and owner["uid"] not in held
        and (queue := queues.get((one["metadata"]["namespace"], one["spec"].get("queueName", "")))) is not None
    ]


def name_of(found: Object) -> str:
    """Namespace and name of an object."""
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def _waits(workload: Object) -> bool:
    """Whether a Workload would be admitted if there was quota."""
    return (
        workload["spec"].get("active", True)
        and "deletionTimestamp" not in workload["metadata"]
        and not any(_has(workload, kind) for kind in ("QuotaReserved", "Finished"))
        # It was evicted because its pods were not ready, and is tried again later.
        and "requeueAt" not in (workload.get("status") or {}).get("requeueState", {})
    )


def _choices(workload: Object, flavors: Mapping[str, Mapping[str, str]]) -> list[dict[str, dict[str, Decimal]]]:
    """What each pod set of a Workload asks for of the flavors that may take it."""
    return [
        {
            flavor: {name: amount * pods["count"] for name, amount in _requests(spec).items()}
            for flavor, node_labels in flavors.items()
            if _may_take(spec, node_labels)
        }
        for pods in workload["spec"]["podSets"]
        if (spec := pods["template"]["spec"])
    ]


def _may_take(pod: Object, node_labels: Mapping[str, str]) -> bool:
    """Whether a pod's node selector, and node affinity by lists of values, allow nodes with these labels."""
    selector: Mapping[str, str] = pod.get("nodeSelector") or {}
    if any(node_labels.get(key, value) != value for key, value in selector.items()):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms", ())
    return not terms or any(
        all(
            expression["operator"] != "In"
            or node_labels.get(expression["key"], expression["values"][0]) in expression["values"]
            for expression in term.get("matchExpressions", ())
        )
        for term in terms
    )


def _requests(pod: Object) -> dict[str, Decimal]:
    """What the containers of a pod ask for together of what has quotas; limits count where nothing is requested, as for Kubernetes."""
    asked: dict[str, Decimal] = defaultdict(Decimal)
    for container in pod["containers"]:
        resources = container.get("resources", {})
        for resource, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            if resource in COUNTED:
                asked[resource] += parse_quantity(amount)
    return dict(asked)


def _sizes(job: Object, group: Object) -> list[int]:
    """The sizes that the job names, as far as they are in its range; a member of the team can write the annotations."""
    annotations = job["metadata"].get("annotations", {})
    least, most, limit = group["minReplicas"], group["maxReplicas"], annotations.get(MOST, "")
    most = min(most, int(limit)) if limit.isdecimal() else most
    named = annotations.get(SIZES, "").split(",")
    return sorted({least, *(int(text) for text in named if text.isdecimal() and least <= int(text) <= most)})


def _quotas(found: Object) -> list[tuple[Key, Object]]:
    return [
        ((flavor["name"], resource["name"]), resource)
        for group in found["spec"].get("resourceGroups", ())
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    ]


def _group(cluster: Object) -> Mapping[str, Any]:
    (group,) = cluster["workerGroupSpecs"]
    found: Mapping[str, Any] = group
    return found


def _assigned(slice_: Object, group: str) -> Mapping[str, Any]:
    assignments: Sequence[Mapping[str, Any]] = slice_["status"]["admission"]["podSetAssignments"]
    return next(one for one in assignments if one["name"] == group)


def _held(workload: Object) -> dict[Key, Decimal]:
    """What a Workload holds, of every flavor and resource."""
    held: dict[Key, Decimal] = defaultdict(Decimal)
    for assigned in workload["status"]["admission"]["podSetAssignments"]:
        count = assigned.get("count") or 1
        kept = min(count, _count(workload, assigned["name"]))
        for resource, flavor in (assigned.get("flavors") or {}).items():
            held[flavor, resource] += (
                parse_quantity((assigned.get("resourceUsage") or {}).get(resource, "0")) * kept / count
            )
    return dict(held)


def _count(slice_: Object, group: str) -> int:
    """Worker pods of a Workload; when there are fewer, Kueue changes its spec only and counts by that (workload.go)."""
    return next(int(one["count"]) for one in slice_["spec"]["podSets"] if one["name"] == group)


def _has(found: Object, kind: str) -> bool:
    conditions: Sequence[Object] = (found.get("status") or {}).get("conditions", ())
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
