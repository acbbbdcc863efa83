"""All teams at a glance: GPUs that are paid for, who uses them, what their time goes to, and every run."""

from __future__ import annotations

from infra.spec.cluster_names import GPU_NAMESPACE, TEAM_BUDGETS
from observability.alerts.cost import IDLE_PERCENT, IDLE_SHARE
from observability.alerts.expressions import GPU_NODES, RUN
from observability.alerts.run_cost import LOST_DOLLARS_PER_HOUR
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import OF_QUEUE, OF_TEAM, RATE, TEAM

_ALLOCATABLE = 'kube_node_status_allocatable{resource="nvidia_com_gpu"}'
_USED = "node:nvidia_gpus_requested:sum"
_WALL = "ray_rtp_train_wall_seconds_total"
_RUNNING = f'max by (namespace, pod) (kube_pod_status_phase{{phase="Running",{OF_TEAM}}}) == 1'
_BY_TEAM = (
    f'sum by (namespace) (kube_pod_container_resource_requests{{resource="nvidia_com_gpu",{OF_TEAM}}} '
    f"and on (namespace, pod) {_RUNNING})"
)


def _spent(part: str = "") -> str:
    chosen = f'{OF_TEAM},class="{part}"' if part else OF_TEAM
    return f"sum by ({RUN}) (increase({_WALL}{{{chosen}}}[$__range]))"


def _newest(metric: str) -> str:
    return f"max by ({RUN}) ({metric}{{{OF_TEAM}}})"


_GOODPUT = (
    f"({_spent('productive')} - (sum by ({RUN}) (increase(ray_rtp_train_repeated_seconds_total"
    f'{{{OF_TEAM},class="productive"}}[$__range])) or 0 * {_spent("productive")})) / {_spent()}'
)
"""Ray exports a counter after its first increment only, so a run without restarts has no repeated time."""

_GLANCE = Row(
    title="At a glance",
    panels=(
        Panel(
            title="GPUs",
            description="GPUs of the nodes that run now, and so cost money.",
            unit=Unit.COUNT,
            queries=(Query(expression=f"sum({_ALLOCATABLE})"),),
            chart=Chart.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Idle GPUs",
            description="Share of the GPUs that no running pod requests. Groups with `min_size` and reserved capacity keep some.",
            unit=Unit.RATIO,
            queries=(Query(expression=f"1 - (sum({_USED}) or vector(0)) / sum({_ALLOCATABLE} > 0)"),),
            chart=Chart.NUMBER,
            limits=(Limit(alert="GpuFleetIdle", value=IDLE_SHARE),),
            alerts=("GpuNodeIdle",),
            maximum=1,
            width=4,
            height=4,
        ),
        Panel(
            title="Jobs that run",
            description="RayJobs of the chosen teams with a running cluster.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'sum(kuberay_job_deployment_status{{deployment_status="Running",{OF_TEAM}}}) or vector(0)'
                ),
            ),
            chart=Chart.NUMBER,
            opens="rtp-queue",
            width=4,
            height=4,
        ),
        Panel(
            title="Jobs that wait",
            description="Workloads in the queues of the chosen teams.",
            unit=Unit.COUNT,
            queries=(Query(expression=f"sum(max by (cluster_queue, status) (kueue_pending_workloads{{{OF_QUEUE}}}))"),),
            chart=Chart.NUMBER,
            opens="rtp-queue",
            width=4,
            height=4,
        ),
        Panel(
            title="Power",
            description="Drawn by all GPUs of the chosen teams.",
            unit=Unit.WATTS,
            queries=(Query(expression=f"sum(max by (node, gpu) (DCGM_FI_DEV_POWER_USAGE{{{OF_TEAM}}}))"),),
            chart=Chart.NUMBER,
            opens="rtp-gpu",
            width=4,
            height=4,
        ),
        Panel(
            title="Firing alerts",
            description="Pages and tickets. Platform health lists them.",
            unit=Unit.COUNT,
            queries=(Query(expression='count(ALERTS{alertstate="firing",severity=~"critical|warning"}) or vector(0)'),),
            chart=Chart.NUMBER,
            opens="rtp-platform",
            width=4,
            height=4,
        ),
    ),
)

_USE = Row(
    title="Who uses the GPUs",
    panels=(
        Panel(
            title="GPUs paid for and requested",
            description="The area between the lines costs money and does nothing.",
            unit=Unit.COUNT,
            queries=(
                Query(expression=f"sum({GPU_NODES})", legend="on nodes"),
                Query(expression=f"sum({_USED})", legend="requested by running pods"),
            ),
            alerts=("GpuFleetIdle", "GpuNodeIdle"),
        ),
        Panel(
            title="GPUs by team",
            description="Requested by the running pods of each team.",
            unit=Unit.COUNT,
            queries=(Query(expression=_BY_TEAM, legend="{{namespace}}"),),
            chart=Chart.STACK,
        ),
        Panel(
            title="GPU utilization by team",
            description="Mean of the team's GPUs. A team far below the others holds GPUs that it does not use.",
            unit=Unit.PERCENT,
            queries=(
                Query(
                    expression=f'avg by (namespace) (DCGM_FI_DEV_GPU_UTIL{{{OF_TEAM},namespace!="{GPU_NAMESPACE}"}})',
                    legend="{{namespace}}",
                ),
            ),
            limits=(Limit(alert="GpuAllocatedIdle", value=IDLE_PERCENT, is_lower=True),),
            maximum=100,
            opens="rtp-gpu",
        ),
        Panel(
            title="What the time of runs goes to",
            description="Wall time of all runs of the chosen teams, by class. `productive` is what it should be; everything "
            "else is paid for too.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"sum by (class) (increase({_WALL}{{{OF_TEAM}}}[$__range])) > 0",
                    legend="{{class}}",
                ),
            ),
            chart=Chart.BARS,
            alerts=("GoodputBurnsFast", "GoodputBurnsSlowly"),
        ),
        Panel(
            title="GPU hours by team",
            description="Requested GPUs, multiplied by the hours of the chosen period for which pods ran.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum_over_time({_BY_TEAM}[$__range:5m]) / 12",
                    legend="{{namespace}}",
                ),
            ),
            chart=Chart.BARS,
        ),
        Panel(
            title="Dollars per hour by team",
            description="What the runs of each team cost in the last hour while they trained, where they know their price. "
            "`make cost ENV=… TEAM=…` also counts what their pods held before and after.",
            unit=Unit.DOLLARS,
            queries=(Query(expression="team:ray_rtp_train_cost_dollars_per_hour:rate1h", legend="{{team}}"),),
            chart=Chart.STACK,
            alerts=("TeamDollarsLost",),
        ),
        Panel(
            title="Dollars lost per hour by team",
            description="Of those, what bought no progress: everything but productive steps, and steps that a restart repeated.",
            unit=Unit.DOLLARS,
            queries=(Query(expression="team:ray_rtp_train_lost_dollars_per_hour:rate1h", legend="{{team}}"),),
            limits=(Limit(alert="TeamDollarsLost", value=LOST_DOLLARS_PER_HOUR),),
        ),
        Panel(
            title="Dollars in 24 hours by team",
            description="What the runs of each team have cost in the last 24 hours, and the budgets of the teams that have one.",
            unit=Unit.DOLLARS,
            queries=(
                Query(expression="team:dollars:sum1d", legend="{{team}}"),
                Query(expression=TEAM_BUDGETS, legend="budget of {{team}}"),
            ),
            alerts=("TeamBudgetSpent",),
        ),
        Panel(
            title="Dollars per hour of GPU nodes",
            description="On-demand prices of the nodes that run now, and of those of them on which no running pod has a GPU. Nodes "
            "of Capacity Blocks, and regions other than that of the price table, have no price.",
            unit=Unit.DOLLARS,
            queries=(
                Query(expression="sum(node:gpu_node_dollars_per_hour:price)", legend="all nodes"),
                Query(expression="sum(node:idle_gpu_node_dollars_per_hour:price)", legend="nodes without a job"),
            ),
            alerts=("GpuNodeIdle", "GpuFleetIdle"),
        ),
        Panel(
            title="Nodes by state",
            description="As the autoscaler sees them. Nodes that stay `notStarted` cost money without joining.",
            unit=Unit.COUNT,
            queries=(Query(expression="max by (state) (cluster_autoscaler_nodes_count)", legend="{{state}}"),),
            chart=Chart.STACK,
            alerts=("GpuNodeNotReady", "ScaleUpFails"),
            opens="rtp-platform",
        ),
    ),
)

_RUNS = Row(
    title="Runs",
    panels=(
        Panel(
            title="Runs that train",
            description="Every run of the chosen teams; a click opens it. Goodput is the productive share of its wall time in the "
            "chosen period, without what a restart repeated.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"{_newest('ray_rtp_train_step')} / {_newest('ray_rtp_train_planned_steps')}",
                    legend="Progress",
                    unit=Unit.RATIO,
                ),
                Query(expression=_GOODPUT, legend="Goodput", unit=Unit.RATIO),
                Query(
                    expression=_newest("ray_rtp_train_samples_per_second"),
                    legend="Throughput",
                    unit=Unit.PER_SECOND,
                ),
                Query(expression=_newest("ray_rtp_train_ranks"), legend="Ranks"),
                Query(
                    expression=f"time() - {_newest('ray_rtp_train_last_step_timestamp_seconds')}",
                    legend="Newest step",
                    unit=Unit.SECONDS,
                ),
                Query(
                    expression=f"time() - {_newest('ray_rtp_train_checkpoint_timestamp_seconds')}",
                    legend="Newest checkpoint",
                    unit=Unit.SECONDS,
                ),
            ),
            chart=Chart.TABLE,
            alerts=("TrainingStalled", "CheckpointOverdue"),
            opens="rtp-run",
            width=24,
            height=9,
        ),
        Panel(
            title="Samples per second by team",
            description="Of all runs of a team together.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by (namespace) (rate(ray_rtp_train_samples_total{{{OF_TEAM}}}{RATE}))",
                    legend="{{namespace}}",
                ),
            ),
            width=12,
        ),
        Panel(
            title="Power by team",
            description="Drawn by the GPUs of each team; those that no pod holds are under the namespace of the exporter.",
            unit=Unit.WATTS,
            queries=(
                Query(
                    expression=f"sum by (namespace) (max by (namespace, node, gpu) (DCGM_FI_DEV_POWER_USAGE{{{OF_TEAM}}}))",
                    legend="{{namespace}}",
                ),
            ),
            chart=Chart.STACK,
            width=12,
        ),
    ),
)

FLEET = Dashboard(
    uid="rtp-fleet",
    title="Fleet and cost",
    description="How busy are the GPUs that we pay for, who uses them, and what is their time spent on?",
    rows=(_GLANCE, _USE, _RUNS),
    variables=(TEAM,),
    since="6h",
)
"""All teams."""
