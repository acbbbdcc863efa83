"""Ray's clusters: their nodes, tasks, actors and objects."""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE
from observability.alerts.nodes import DISK_PERCENT, MEMORY_SHARE
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit, Variable
from observability.dashboards.queries import OF_JOB, OF_TEAM, TEAM

_NODE = "namespace, training_job, pod"
_CLUSTER = "namespace, training_job"


def _of_node(metric: str) -> str:
    return f"max by ({_NODE}) (ray_{metric}{{{OF_JOB}}})"


def _resource(name: str) -> tuple[Query, Query]:
    used = f'sum by ({_CLUSTER}) (ray_resources{{{OF_JOB},Name="{name}",State="USED"}})'
    return (
        Query(expression=used, legend="{{training_job}} used"),
        Query(
            expression=f'sum by ({_CLUSTER}) (ray_resources{{{OF_JOB},Name="{name}"}})', legend="{{training_job}} total"
        ),
    )


_CLUSTERS = Row(
    title="Clusters",
    panels=(
        Panel(
            title="GPUs of Ray",
            description="GPUs that actors hold, and all of the cluster. A trainer holds every GPU of its job; in a session, a gap "
            "is GPUs that nobody uses.",
            unit=Unit.COUNT,
            queries=_resource("GPU"),
        ),
        Panel(
            title="CPUs of Ray",
            description="CPUs that tasks and actors hold, and all of the cluster.",
            unit=Unit.COUNT,
            queries=_resource("CPU"),
        ),
        Panel(
            title="Scraped pods",
            description="Pods of Ray that Prometheus reads: a head and each worker. Fewer than the job has pods means that no "
            "alert watches the rest.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"count by ({_CLUSTER}) (count by ({_NODE}) "
                    f'(up{{{OF_JOB},job=~"{MONITORING_NAMESPACE}/ray-(heads|workers)"}} == 1))',
                    legend="{{training_job}}",
                ),
            ),
            alerts=("JobMetricsMissing",),
        ),
    ),
)

_NODES = Row(
    title="Nodes",
    panels=(
        Panel(
            title="CPU",
            description="Of the pod's CPUs. A worker at 100 % has too few for its loaders.",
            unit=Unit.PERCENT,
            queries=(Query(expression=_of_node("node_cpu_utilization"), legend="{{pod}}"),),
            maximum=100,
        ),
        Panel(
            title="Memory",
            description="Share of the pod's memory. A steady rise is a leak; close to the limit, Ray or the kernel kills workers.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_of_node('node_mem_used')} / {_of_node('node_mem_total')}",
                    legend="{{pod}}",
                ),
            ),
            limits=(Limit(alert="RayNodeMemoryHigh", value=MEMORY_SHARE),),
            maximum=1,
        ),
        Panel(
            title="Disk",
            description="Share of the pod's disk: logs, spilled objects, temporary files. A full one ends the job.",
            unit=Unit.PERCENT,
            queries=(Query(expression=_of_node("node_disk_utilization_percentage"), legend="{{pod}}"),),
            limits=(Limit(alert="RayNodeDiskFull", value=DISK_PERCENT),),
            maximum=100,
        ),
        Panel(
            title="Network sent",
            description="Bytes per second: gradients without EFA, checkpoints.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expression=_of_node("node_network_send_speed"), legend="{{pod}}"),),
        ),
        Panel(
            title="Network received",
            description="Bytes per second: gradients without EFA, and datasets on shared storage.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expression=_of_node("node_network_receive_speed"), legend="{{pod}}"),),
        ),
        Panel(
            title="Workers killed for lack of memory",
            description="By Ray's memory monitor, since the cluster started. Ray counts after the first one: no line is good.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by ({_NODE}) (ray_memory_manager_worker_eviction_total{{{OF_JOB}}})",
                    legend="{{pod}}",
                ),
            ),
            alerts=("RayWorkersKilled",),
        ),
    ),
)

_WORK = Row(
    title="Tasks, actors, objects",
    panels=(
        Panel(
            title="Tasks by state",
            description="Tasks that have not ended. Many that are pending have no node with the resources that they ask for.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'clamp_min(sum by (State) (ray_tasks{{{OF_JOB},State!~"FINISHED|FAILED"}}), 0)',
                    legend="{{State}}",
                ),
            ),
            chart=Chart.STACK,
        ),
        Panel(
            title="Actors by state",
            description="As the head counts them. Ranks are actors; DEAD ones belong to earlier attempts.",
            unit=Unit.COUNT,
            queries=(Query(expression=f'sum by (State) (ray_actors{{{OF_JOB},Source="gcs"}})', legend="{{State}}"),),
            chart=Chart.STACK,
        ),
        Panel(
            title="Object store",
            description="Objects in shared memory, in files instead of it, and spilled to disk. The trainer keeps little here; spilled "
            "objects fill the disk.",
            unit=Unit.BYTES,
            queries=(
                Query(expression=f"sum by (Location) (ray_object_store_memory{{{OF_JOB}}})", legend="{{Location}}"),
            ),
            chart=Chart.STACK,
        ),
    ),
)

RAY = Dashboard(
    uid="rtp-ray",
    title="Ray",
    description="Do the nodes of a job have enough CPUs, memory, disk and network, and what do Ray's tasks and actors do?",
    rows=(_CLUSTERS, _NODES, _WORK),
    variables=(
        TEAM,
        Variable(name="job", title="Job or session", selector=f"ray_node_mem_total{{{OF_TEAM}}}", label="training_job"),
    ),
)
"""Jobs and sessions."""
