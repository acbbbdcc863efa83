"""Metrics of KubeRay, Kueue and the cluster autoscaler."""

from __future__ import annotations

from observability.metrics.external.model import ScrapedMetric, Source

_KUBERAY = "ray-project/kuberay"
_CLUSTERS = Source(
    component="KubeRay",
    project=_KUBERAY,
    version="1.6.2",
    file="ray-operator/controllers/ray/metrics/ray_cluster_metrics.go",
)
_JOBS = Source(
    component="KubeRay",
    project=_KUBERAY,
    version="1.6.2",
    file="ray-operator/controllers/ray/metrics/ray_job_metrics.go",
)
_KUEUE = Source(component="Kueue", project="kubernetes-sigs/kueue", version="0.19.2", file="pkg/metrics/metrics.go")
_AUTOSCALER = Source(
    component="cluster autoscaler",
    project="kubernetes/autoscaler",
    version="1.35.0",
    file="cluster-autoscaler/metrics/metrics.go",
)

_QUOTA_LABELS = ("cohort", "cluster_queue", "flavor", "resource", "replica_role")

OPERATOR_METRICS = (
    ScrapedMetric(
        name="kuberay_cluster_condition_provisioned",
        kind="gauge",
        help="1 for the state of a RayCluster: whether all its pods have been ready.",
        labels=("namespace", "name", "condition"),
        source=_CLUSTERS,
    ),
    ScrapedMetric(
        name="kuberay_job_deployment_status",
        kind="gauge",
        help="1 for the state of a RayJob.",
        labels=("namespace", "name", "deployment_status"),
        source=_JOBS,
    ),
    ScrapedMetric(
        name="kueue_pending_workloads",
        kind="gauge",
        help="Pending workloads: active, or inadmissible until the cluster changes. Each replica of Kueue exports it.",
        labels=("cluster_queue", "status", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_admitted_workloads_total",
        kind="counter",
        help="Admitted workloads.",
        labels=("cluster_queue", "priority_class", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_evicted_workloads_total",
        kind="counter",
        help="Evicted workloads.",
        labels=("cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_admission_wait_time_seconds",
        kind="histogram",
        unit="seconds",
        help="Time from the creation or requeuing of a workload to its admission.",
        labels=("cluster_queue", "priority_class", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_cluster_queue_status",
        kind="gauge",
        help="1 for the state of a queue: pending, active or terminating.",
        labels=("cluster_queue", "status", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="cluster_autoscaler_failed_scale_ups_total",
        kind="counter",
        help="Node groups that could not grow.",
        labels=("reason",),
        source=_AUTOSCALER,
    ),
    ScrapedMetric(
        name="cluster_autoscaler_scaled_down_nodes_total",
        kind="counter",
        help="Nodes that the autoscaler removed.",
        labels=("reason",),
        source=_AUTOSCALER,
    ),
    ScrapedMetric(
        name="cluster_autoscaler_cluster_safe_to_autoscale",
        kind="gauge",
        help="1 while the autoscaler acts, 0 while too many nodes are not ready.",
        labels=(),
        source=_AUTOSCALER,
    ),
    ScrapedMetric(
        name="kueue_admitted_active_workloads",
        kind="gauge",
        help="Admitted workloads that have not ended.",
        labels=("cluster_queue", "replica_role"),
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_cluster_queue_resource_usage",
        kind="gauge",
        help="Resources in use by a queue's workloads, in units of the resource.",
        labels=_QUOTA_LABELS,
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="kueue_cluster_queue_nominal_quota",
        kind="gauge",
        help="Quota of a queue, in units of the resource.",
        labels=_QUOTA_LABELS,
        source=_KUEUE,
    ),
    ScrapedMetric(
        name="cluster_autoscaler_nodes_count",
        kind="gauge",
        help="Nodes by state, e.g. ready or notStarted.",
        labels=("state",),
        source=_AUTOSCALER,
    ),
    ScrapedMetric(
        name="cluster_autoscaler_unschedulable_pods_count",
        kind="gauge",
        help="Pods that fit on no node.",
        labels=("type",),
        source=_AUTOSCALER,
    ),
)
