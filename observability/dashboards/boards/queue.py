"""The queues: who waits, how long, for what, and who has the GPUs."""

from __future__ import annotations

from observability.alerts.nodes import FAILED_SCALE_UPS
from observability.alerts.queue import EVICTIONS_PER_HOUR, LONG_WAIT_SECONDS
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import OF_QUEUE, OF_TEAM, TEAM, quantile

_GPUS = f'{OF_QUEUE},resource="nvidia.com/gpu"'
_PENDING = f"max by (cluster_queue, status) (kueue_pending_workloads{{{OF_QUEUE}}})"
"""Each replica of Kueue exports the gauges of all queues."""


def _of_quota(metric: str) -> str:
    return f"sum by (cluster_queue) (max by (cluster_queue, flavor) (kueue_cluster_queue_{metric}{{{_GPUS}}}))"


def _wait(share: float) -> str:
    return quantile(share, "kueue_admission_wait_time_seconds", by="cluster_queue", matchers=OF_QUEUE, window="[6h]")


_WAITING = Row(
    title="Who waits?",
    panels=(
        Panel(
            title="Jobs that wait",
            description="Active ones are tried again and again; inadmissible ones only when the cluster changes, most often because "
            "they ask for more than the quota has.",
            unit=Unit.COUNT,
            queries=(Query(expression=_PENDING, legend="{{cluster_queue}} {{status}}"),),
            chart=Chart.STACK,
            alerts=("QueueStarved", "JobInadmissible"),
        ),
        Panel(
            title="Waiting time",
            description="From submission, or from an eviction, to admission: half of the jobs, and nine of ten, of the last six hours.",
            unit=Unit.SECONDS,
            queries=(
                Query(expression=_wait(0.5), legend="{{cluster_queue}} median"),
                Query(expression=_wait(0.9), legend="{{cluster_queue}} 90th percentile"),
            ),
            limits=(Limit(alert="QueueWaitLong", value=LONG_WAIT_SECONDS),),
        ),
        Panel(
            title="Jobs admitted in an hour",
            description="None for hours while jobs wait: a large job waits for all of its GPUs, or someone holds the quota.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by (cluster_queue) (increase(kueue_admitted_workloads_total{{{OF_QUEUE}}}[1h]))",
                    legend="{{cluster_queue}}",
                ),
            ),
            alerts=("QueueStarved", "KueueMetricsMissing"),
        ),
    ),
)

_QUOTA = Row(
    title="Who has the GPUs?",
    panels=(
        Panel(
            title="GPUs in use by queue",
            description="Held by admitted jobs, whether they use them or not.",
            unit=Unit.COUNT,
            queries=(Query(expression=_of_quota("resource_usage"), legend="{{cluster_queue}}"),),
            chart=Chart.STACK,
        ),
        Panel(
            title="Use of the quota",
            description="GPUs in use as a share of the team's quota. Above 1 the team borrows idle GPUs of others, and returns them "
            "when they are needed.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_of_quota('resource_usage')} / ({_of_quota('nominal_quota')} > 0)",
                    legend="{{cluster_queue}}",
                ),
            ),
        ),
        Panel(
            title="Jobs admitted and not ended",
            description="Jobs that hold quota, by queue: they run, or wait for nodes.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"max by (cluster_queue) (kueue_admitted_active_workloads{{{OF_QUEUE}}})",
                    legend="{{cluster_queue}}",
                ),
            ),
            chart=Chart.STACK,
        ),
        Panel(
            title="Evictions in an hour",
            description="By reason. Preempted jobs made room for a team that took its quota back; PodsReadyTimeout means that pods "
            f"did not become ready, and more than {EVICTIONS_PER_HOUR} of these are an alert.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{{{OF_QUEUE}}}[1h]))",
                    legend="{{cluster_queue}} {{reason}}",
                ),
            ),
            alerts=("JobsNotReadyInTime",),
        ),
        Panel(
            title="Active queues",
            description="1 while a queue admits jobs. An update holds the queues while it replaces nodes.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'max by (cluster_queue) (kueue_cluster_queue_status{{{OF_QUEUE},status="active"}})',
                    legend="{{cluster_queue}}",
                ),
            ),
            alerts=("QueueInactive",),
            maximum=1,
        ),
        Panel(
            title="Jobs by state",
            description="RayJobs that exist. Initializing ones have been admitted, and wait for nodes, images and pods.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by (deployment_status) (kuberay_job_deployment_status{{{OF_TEAM}}})",
                    legend="{{deployment_status}}",
                ),
            ),
            chart=Chart.STACK,
            alerts=("JobNotStarting", "JobFailed"),
        ),
    ),
)

_NODES = Row(
    title="Do nodes come?",
    panels=(
        Panel(
            title="Pods without a node",
            description="A few for minutes are normal: new GPU nodes need that long. They stay if no group can grow.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by (namespace) (kube_pod_status_unschedulable{{{OF_TEAM}}})",
                    legend="{{namespace}}",
                ),
            ),
            chart=Chart.STACK,
            alerts=("WorkersMissing",),
        ),
        Panel(
            title="Clusters that lack workers",
            description="RayClusters whose pods have not all been ready yet.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'count by (namespace) (kuberay_cluster_condition_provisioned{{{OF_TEAM},condition="false"}} == 1)',
                    legend="{{namespace}}",
                ),
            ),
            alerts=("WorkersMissing",),
        ),
        Panel(
            title="Failed scale-ups in half an hour",
            description="Node groups that AWS could not grow: no capacity, a quota, or a launch template. The autoscaler tries another "
            "group after the first.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression="sum by (reason) (increase(cluster_autoscaler_failed_scale_ups_total[30m]))",
                    legend="{{reason}}",
                ),
            ),
            limits=(Limit(alert="ScaleUpFails", value=FAILED_SCALE_UPS),),
            alerts=("AutoscalerStopped",),
        ),
    ),
)

QUEUE_DASHBOARD = Dashboard(
    uid="rtp-queue",
    title="Queue",
    description="Why does my job not start: the quota, the jobs before it, or nodes that do not come?",
    rows=(_WAITING, _QUOTA, _NODES),
    variables=(TEAM,),
    since="12h",
)
"""From submission to the first pod."""
