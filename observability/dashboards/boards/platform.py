"""The platform itself: alerts that fire, nodes that are out of order, services, and monitoring that sees nothing."""

from __future__ import annotations

from infra.spec.cluster_names import (
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
)
from infra.spec.node_labels import SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from observability.alerts.expressions import GPU_NODES
from observability.alerts.nodes import REPAIR_LIMIT
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import RATE

_PLATFORM = "|".join(
    (MLFLOW_NAMESPACE, MONITORING_NAMESPACE, KUBERAY_NAMESPACE, KUEUE_NAMESPACE, GPU_NAMESPACE, "kube-system")
)


def _taint(key: str) -> str:
    return f'kube_node_spec_taint{{key="{key}"}}'


_ALERTS = Row(
    title="Alerts",
    panels=(
        Panel(
            title="Firing and pending alerts",
            description="Their subject, for how many series. The runbooks say what each means and what to do.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression='count by (severity, alertname, alertstate, namespace, training_job, node) (ALERTS{severity!="none"})',
                    legend="Series",
                ),
            ),
            chart=Chart.TABLE,
            width=16,
        ),
        Panel(
            title="Firing alerts by severity",
            description="Pages are `critical`, tickets `warning`; `info` is sent to no one.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression='count by (severity) (ALERTS{alertstate="firing",severity!="none"})',
                    legend="{{severity}}",
                ),
            ),
            chart=Chart.STACK,
        ),
    ),
)

_NODES = Row(
    title="GPU nodes",
    panels=(
        Panel(
            title="GPU nodes",
            description="All, those that are not ready for jobs yet, those that are unhealthy, and those whose kubelet is gone.",
            unit=Unit.COUNT,
            queries=(
                Query(expression=f"count({GPU_NODES} > 0)", legend="all"),
                Query(expression=f"count({_taint(START_UP_TAINT.key)}) or vector(0)", legend="starting"),
                Query(expression=f"count({_taint(UNHEALTHY_TAINT.key)}) or vector(0)", legend="unhealthy"),
                Query(
                    expression='count(kube_node_status_condition{condition="Ready",status="true"} == 0 '
                    f"and on (node) {GPU_NODES} > 0) or vector(0)",
                    legend="lost",
                ),
            ),
            alerts=("GpuNodeNotReady", "GpuNodeUnhealthy", "GpuNodeNotRepaired", "GpuNodeLost"),
        ),
        Panel(
            title="Unhealthy share",
            description="Of the GPU nodes. Above the line EKS repairs none, so that a common cause does not empty the cluster.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"(count({_taint(UNHEALTHY_TAINT.key)}) or vector(0)) / count({GPU_NODES})",
                    legend="unhealthy",
                ),
            ),
            limits=(Limit(alert="GpuNodesUnhealthy", value=REPAIR_LIMIT),),
            maximum=1,
        ),
        Panel(
            title="GPUs out of order",
            description="GPUs of a node that the device plugin does not offer. Nothing above zero is good.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"max by (node) ({GPU_NODES}) - on (node) "
                    'max by (node) (kube_node_status_allocatable{resource="nvidia_com_gpu"})',
                    legend="{{node}}",
                ),
            ),
            alerts=("GpuDevicesLost",),
            opens="rtp-gpu",
        ),
        Panel(
            title="Spot nodes",
            description="A step down while jobs run is EC2 taking capacity back.",
            unit=Unit.COUNT,
            queries=(Query(expression=f"count({_taint(SPOT_TAINT.key)}) or vector(0)", legend="spot"),),
            alerts=("SpotNodesLost",),
        ),
        Panel(
            title="Nodes by state",
            description="Of all groups, as the autoscaler sees them.",
            unit=Unit.COUNT,
            queries=(Query(expression="max by (state) (cluster_autoscaler_nodes_count)", legend="{{state}}"),),
            chart=Chart.STACK,
            alerts=("ScaleUpFails", "AutoscalerStopped"),
        ),
        Panel(
            title="Unschedulable pods",
            description="As the autoscaler sees them. They fall when nodes join.",
            unit=Unit.COUNT,
            queries=(
                Query(expression="max by (type) (cluster_autoscaler_unschedulable_pods_count)", legend="{{type}}"),
            ),
            alerts=("WorkersMissing",),
            opens="rtp-queue",
        ),
    ),
)

_SERVICES = Row(
    title="Services",
    panels=(
        Panel(
            title="Available pods of each service",
            description="Of the platform's Deployments. None at 0: without MLflow nobody sees runs; without the controllers no job "
            "is admitted or recovered.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'min by (namespace, deployment) (kube_deployment_status_replicas_available{{namespace=~"{_PLATFORM}"}})',
                    legend="{{namespace}}/{{deployment}}",
                ),
            ),
            alerts=(
                "MlflowDown",
                "MlflowCleanupFailed",
                "MlflowBackupOld",
                "MlflowRestoreDrillFailed",
                "ControllerDown",
                "JobSizerDown",
            ),
            width=12,
        ),
        Panel(
            title="Targets that do not answer",
            description="Scrapes that fail, by monitor. What is not scraped raises no alert.",
            unit=Unit.COUNT,
            queries=(Query(expression="sum by (job) (up == bool 0)", legend="{{job}}"),),
            chart=Chart.STACK,
            alerts=(
                "JobMetricsMissing",
                "KubernetesMetricsMissing",
                "KueueMetricsMissing",
                "GpuMetricsMissing",
            ),
            width=12,
        ),
        Panel(
            title="Logs that cannot be delivered",
            description="Retries per second of each shipper. It drops the oldest logs once its buffer is full.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by (pod) (rate(fluentbit_output_retries_total{RATE}))",
                    legend="{{pod}}",
                ),
            ),
            alerts=("LogsNotShipped",),
            width=6,
        ),
        Panel(
            title="Series in Prometheus",
            description="What its memory is spent on. A jump is a label with too many values.",
            unit=Unit.COUNT,
            queries=(Query(expression="max by (pod) (prometheus_tsdb_head_series)", legend="{{pod}}"),),
            width=6,
        ),
        Panel(
            title="Samples stored by Prometheus",
            description="Per second. 0 means that it is full or broken, and that all other panels are out of date.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by (pod) (rate(prometheus_tsdb_head_samples_appended_total{RATE}))",
                    legend="{{pod}}",
                ),
            ),
            width=6,
        ),
        Panel(
            title="Failed rules",
            description="Evaluations per second that failed. A rule that fails raises no alert.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by (pod) (rate(prometheus_rule_evaluation_failures_total{RATE}))",
                    legend="{{pod}}",
                ),
            ),
            width=6,
        ),
    ),
)

PLATFORM = Dashboard(
    uid="rtp-platform",
    title="Platform health",
    description="Which alerts fire, and are the nodes, the platform's services and the monitoring itself in order?",
    rows=(_ALERTS, _NODES, _SERVICES),
    since="6h",
)
"""For administrators."""
