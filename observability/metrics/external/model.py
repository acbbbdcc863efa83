"""The types of a metric that Prometheus scrapes, and of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from observability.metrics.inventory import Kind

LABEL_BOUNDS: Mapping[str, str] = {
    # Of a run or search.
    "run": "runs and trials that are being trained",
    "search": "searches that run",
    "part": "7 parts of a step",
    "class": "13 classes of wall time",
    "rank": "world size",
    "state": "2 states of GPU memory, or states of a node",
    "unit": "what an objective counts, or a unit of Kubernetes",
    "metric": "metrics of an objective",
    "split": "splits of a dataset",
    "status": "states of a trial, a queue, or a condition",
    "le": "buckets of a histogram",
    # Of a target.
    "job": "scrape configurations",
    "instance": "targets",
    "service": "services with a monitor",
    "endpoint": "ports with metrics",
    "namespace": "namespaces: the platform's and one for each team",
    "pod": "pods that run",
    "container": "containers of those pods",
    "ray_io_cluster": "Ray clusters, one for each job that runs",
    "team": "teams",
    "training_job": "jobs that run",
    # Of Ray, KubeRay, Kueue, the autoscaler.
    "name": "jobs and clusters that exist, or outputs of Fluent Bit",
    "condition": "conditions of a node, or true and false",
    "deployment_status": "10 states of a RayJob",
    "cluster_queue": "queues: one for each team",
    "cohort": "cohorts of queues: one",
    "flavor": "groups of nodes",
    "replica_role": "3 roles of a replica",
    "type": "2 kinds of pods without a node",
    "priority_class": "priorities of jobs",
    "reason": "reasons in the exporter's source",
    "underlying_cause": "causes in Kueue's source",
    "IsHeadNode": "true and false",
    "Name": "kinds of tasks and actors, or resources of Ray",
    "State": "states of Ray's tasks, actors and resources",
    "Source": "components of Ray that count tasks and actors",
    "IsRetry": "true and false",
    "Location": "places of objects",
    # Of GPUs and nodes.
    "node": "nodes",
    "label_ray_train_platform_group": "groups of nodes",
    "label_node_kubernetes_io_instance_type": "instance types of the groups",
    "gpu": "GPUs of a node",
    "device": "GPUs of a node",
    "modelName": "GPU models",
    "xid": "XIDs in NVIDIA's catalogue",
    "resource": "resources of a node",
    "cronjob": "CronJobs of the platform",
    "key": "taints of the platform",
    "value": "values of those taints",
    "effect": "3 effects of a taint",
    "deployment": "deployments",
    "phase": "5 phases of a pod",
    # Of Prometheus.
    "alertname": "alert rules",
    "alertstate": "pending and firing",
    "severity": "3 severities",
}
"""Every label that a query may use, and what bounds the number of its values."""

SERVICE_MONITOR_LABELS = ("job", "instance", "namespace", "service", "pod", "container", "endpoint")
"""Labels that scraping adds (Prometheus Operator 0.93.1, pkg/prometheus/promcfg.go)."""

RAY_POD_MONITOR_LABELS = (
    "job",
    "instance",
    "namespace",
    "pod",
    "container",
    "endpoint",
    "ray_io_cluster",
    "team",
    "training_job",
)
"""Those of our PodMonitors of Ray, with the labels of `platform_charts.objects.monitoring`."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the name, type and labels of a metric were read.

    Attributes:
        component: the program that exports it.
        project: its repository, or its package.
        version: the version that was read.
        file: path in the project.
        target_labels: labels that scraping adds; the metric's own win where the monitor honours them.
    """

    component: str
    project: str
    version: str
    file: str
    target_labels: tuple[str, ...] = SERVICE_MONITOR_LABELS


@dataclass(frozen=True, kw_only=True)
class ScrapedMetric:
    """A metric as Prometheus stores it.

    Attributes:
        unit: base unit; empty if the metric has none, or is a share from 0 to 1.
        labels: the metric's own bounded labels.
    """

    name: str
    kind: Kind
    unit: str = ""
    help: str
    labels: tuple[str, ...]
    source: Source

    def series(self) -> Mapping[str, frozenset[str]]:
        """Labels of its series by their name: a histogram has three."""
        labels = frozenset((*self.labels, *self.source.target_labels))
        if self.kind != "histogram":
            return {self.name: labels}
        return {
            f"{self.name}_bucket": labels | {"le"},
            f"{self.name}_sum": labels,
            f"{self.name}_count": labels,
        }
