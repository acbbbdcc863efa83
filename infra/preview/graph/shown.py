"""What the picture says of the cluster's objects: which have a box of their own, which share one, and which are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.preview.recording import Resource
from infra.spec.cluster_names import (
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
)
from infra.spec.node_labels import GPU_RESOURCE

_FIRST = ("kube-system", KUEUE_NAMESPACE, KUBERAY_NAMESPACE, GPU_NAMESPACE, MONITORING_NAMESPACE)
_HELPERS = {"prometheus-config-reloader", "kube-webhook-certgen", "k8s-sidecar"}
"""Images of charts that only start, reload or test what the chart is for."""


def place(namespace: str, *, is_team: bool) -> tuple[int, str]:
    """Sorts namespaces: operators and monitoring, then the teams, then MLflow and the rest."""
    if namespace in _FIRST:
        return _FIRST.index(namespace), namespace
    if is_team:
        return len(_FIRST), namespace
    return len(_FIRST) + (1 if namespace == MLFLOW_NAMESPACE else 2), namespace


def kind_of(resource: Resource) -> str:
    """Kind of a Kubernetes object; of a Helm release `Release`."""
    return resource.type.rpartition(":")[2]


def name_of(resource: Resource) -> str:
    """Name of a Kubernetes object in the cluster, or of a Helm release."""
    name: str = (resource.properties.get("metadata") or resource.properties)["name"]
    return name


def chart_facts(release: Resource) -> str:
    """The programs of a chart with their versions, from the images in its values."""
    programs = sorted({one for one in _images(release.properties.get("values")) if one[0] not in _HELPERS})
    return ", ".join(["Helm chart", *(f"{name} {tag}" for name, tag in programs)])


def _images(value: object) -> Iterator[tuple[str, str]]:
    """Name and tag of each image in the values of a chart."""
    if isinstance(value, Mapping):
        if isinstance(value.get("repository"), str) and value.get("tag"):
            yield value["repository"].rpartition("/")[2], str(value["tag"]).partition("@")[0]
        for member in value.values():
            yield from _images(member)


def _pods(resource: Resource) -> str:
    count = resource.properties["spec"].get("replicas", 1)
    return f"{kind_of(resource)}, {count} pod{'s' if count != 1 else ''}"


def _schedule(resource: Resource) -> str:
    return f"CronJob, {resource.properties['spec']['schedule']}"


def _hosts(resource: Resource) -> str:
    return ", ".join(["Ingress", *(rule["host"] for rule in resource.properties["spec"]["rules"])])


WORKLOADS: Mapping[str, Callable[[Resource], str]] = {
    "Deployment": _pods,
    "StatefulSet": _pods,
    "DaemonSet": lambda _: "DaemonSet",
    "CronJob": _schedule,
    "Ingress": _hosts,
}
"""Kinds whose objects have a box each, and what the box says."""


def _names(resources: list[Resource]) -> str:
    return ", ".join(map(name_of, resources))


def _alerts(resources: list[Resource]) -> str:
    groups = [group for one in resources for group in one.properties["spec"]["groups"]]
    alerts = sum("alert" in rule for group in groups for rule in group["rules"])
    return f"{alerts} in {len(groups)} groups"


SHARED: Mapping[str, tuple[str, Callable[[list[Resource]], str]]] = {
    "ResourceFlavor": ("Flavors, a node group each", _names),
    "Topology": ("Topologies", _names),
    "WorkloadPriorityClass": ("Priorities of jobs", _names),
    "StorageClass": ("Storage classes", _names),
    "ValidatingAdmissionPolicy": ("Admission policies", lambda found: f"{len(found)}"),
    "PodMonitor": ("Pod monitors", _names),
    "PrometheusRule": ("Alert rules", _alerts),
    "Dashboard": ("Dashboards", lambda found: f"{len(found)} in Grafana"),
}
"""Kinds whose objects share a box in each namespace, with its title and what it says."""


def shared_kind(resource: Resource) -> str:
    """Key of `SHARED` for an object, if it has one there: its kind, except that dashboards are ConfigMaps."""
    labels = (resource.properties.get("metadata") or {}).get("labels") or {}
    return "Dashboard" if "grafana_dashboard" in labels else kind_of(resource)


def gpus(spec: Mapping[str, Any]) -> Mapping[str, str]:
    """GPU quota of each flavor of a ClusterQueue or Cohort, without those of none."""
    return {
        flavor["name"]: resource["nominalQuota"]
        for group in spec.get("resourceGroups", ())
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == GPU_RESOURCE and resource["nominalQuota"] != "0"
    }


def _may_borrow(spec: Mapping[str, Any]) -> bool:
    """Whether a queue may borrow GPUs of any flavor."""
    resources = [
        one for group in spec.get("resourceGroups", ()) for flavor in group["flavors"] for one in flavor["resources"]
    ]
    limits = [
        one.get("borrowingLimit") for one in resources if one["name"] == GPU_RESOURCE and one["nominalQuota"] != "0"
    ]
    return not limits or any(limit != "0" for limit in limits)


def queue_facts(queue: Resource) -> str:
    """The ClusterQueue that a team's LocalQueue leads to: its GPUs, and whether it borrows more."""
    spec = queue.properties["spec"]
    owned = ", ".join(f"{count} {flavor}" for flavor, count in gpus(spec).items())
    borrows = "may borrow" if _may_borrow(spec) else "does not borrow"
    return f"Cluster queue {name_of(queue)}, GPUs: {owned or 'none of its own'}; {borrows}"


def cohort_facts(cohort: Resource) -> str:
    """What the queues of a cohort share."""
    unowned = ", ".join(f"{count} {flavor}" for flavor, count in gpus(cohort.properties["spec"]).items())
    free = f"; GPUs of no team: {unowned}" if unowned else ""
    return f"its queues lend each other idle GPUs{free}"


def claim_facts(claim: Resource, volume: Resource | None) -> str:
    """A claim's name, and whether its volume is read-only."""
    options = (volume.properties["spec"].get("mountOptions") or ()) if volume else ()
    return f"{name_of(claim)} (read-only)" if "ro" in options else name_of(claim)
