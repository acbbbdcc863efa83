"""Metrics of kube-state-metrics, which describe the objects of the Kubernetes API."""

from __future__ import annotations

from observability.metrics.external.model import ScrapedMetric, Source

_PROJECT, _VERSION = "kubernetes/kube-state-metrics", "2.20.0"


def _source(file: str) -> Source:
    return Source(component="kube-state-metrics", project=_PROJECT, version=_VERSION, file=f"internal/store/{file}")


def _gauge(name: str, text: str, *, file: str, labels: tuple[str, ...]) -> ScrapedMetric:
    return ScrapedMetric(name=name, kind="gauge", help=text, labels=labels, source=_source(file))


KUBERNETES_METRICS = (
    _gauge("kube_node_info", "1 for each node.", file="node.go", labels=("node",)),
    _gauge(
        "kube_node_labels",
        "1 for each node, with those of its labels that the chart's values name.",
        file="node.go",
        labels=("node", "label_ray_train_platform_group", "label_node_kubernetes_io_instance_type"),
    ),
    _gauge(
        "kube_node_spec_taint", "1 for each taint of a node.", file="node.go", labels=("node", "key", "value", "effect")
    ),
    _gauge(
        "kube_node_status_condition",
        "1 for the state of a node's condition.",
        file="node.go",
        labels=("node", "condition", "status"),
    ),
    _gauge(
        "kube_node_status_capacity",
        "Resources of a node, also those that are out of order.",
        file="node.go",
        labels=("node", "resource", "unit"),
    ),
    _gauge(
        "kube_node_status_allocatable",
        "Resources of a node that pods can request.",
        file="node.go",
        labels=("node", "resource", "unit"),
    ),
    _gauge(
        "kube_pod_container_resource_requests",
        "Resources that a container requests.",
        file="pod.go",
        labels=("namespace", "pod", "container", "node", "resource", "unit"),
    ),
    _gauge("kube_pod_status_phase", "1 for the phase of a pod.", file="pod.go", labels=("namespace", "pod", "phase")),
    _gauge(
        "kube_pod_status_unschedulable",
        "1 for a pod that fits on no node.",
        file="pod.go",
        labels=("namespace", "pod"),
    ),
    _gauge(
        "kube_deployment_status_replicas_available",
        "Pods of a Deployment that are available.",
        file="deployment.go",
        labels=("namespace", "deployment"),
    ),
    _gauge(
        "kube_cronjob_created",
        "Unix time at which a CronJob was created.",
        file="cronjob.go",
        labels=("namespace", "cronjob"),
    ),
    _gauge(
        "kube_cronjob_spec_suspend", "1 if a CronJob is suspended.", file="cronjob.go", labels=("namespace", "cronjob")
    ),
    _gauge(
        "kube_cronjob_status_last_successful_time",
        "Unix time at which a CronJob's newest successful Job ended; none before the first.",
        file="cronjob.go",
        labels=("namespace", "cronjob"),
    ),
)
