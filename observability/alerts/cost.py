"""Rules about GPUs that are paid for and do nothing.

The prices of nodes are not in Prometheus, only the dollars that runs count (`observability.alerts.run_cost`); the AWS budget of the
environment (`infra.aws.budget`) sends an email when money is spent.
"""

from __future__ import annotations

from infra.spec.cluster_names import GPU_NAMESPACE
from observability.alerts.expressions import COUNT, GPU_NODES
from observability.alerts.model import Alert, Group, Recording, Severity

IDLE_PERCENT = 5
"""Utilization below which a GPU does nothing but keep a process."""

IDLE_SHARE = 0.5
"""Share of the GPUs that no pod requests."""

_REQUESTED = "node:nvidia_gpus_requested:sum"
_ALLOCATABLE = 'kube_node_status_allocatable{resource="nvidia_com_gpu"}'
_RUNNING = 'max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1'

COST = Group(
    name="gpu-cost",
    recordings=(
        Recording(
            name=_REQUESTED,
            expression='sum by (node) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} '
            f"and on (namespace, pod) {_RUNNING})",
        ),
    ),
    alerts=(
        Alert(
            name="GpuAllocatedIdle",
            expression="max by (namespace, pod, node, gpu) "
            f'(avg_over_time(DCGM_FI_DEV_GPU_UTIL{{namespace!="{GPU_NAMESPACE}"}}[30m])) < {IDLE_PERCENT}',
            wait="30m",
            severity=Severity.TICKET,
            summary="GPU {{ $labels.gpu }} of {{ $labels.namespace }}/{{ $labels.pod }} on node {{ $labels.node }} is used "
            "for {{ $value | humanize }} % of the time.",
            action="Ask its owner: a session that waits, a job that hangs, or one with more GPUs than ranks.",
        ),
        Alert(
            name="GpuNodeIdle",
            expression=f"max by (node) ({GPU_NODES}) > 0 unless on (node) {_REQUESTED} > 0",
            wait="2h",
            severity=Severity.TICKET,
            summary=f"No pod has used the {COUNT} GPUs of node {{{{ $labels.node }}}} for two hours.",
            action="The group's min_size keeps it, or something keeps the autoscaler from removing it; see its events.",
        ),
        Alert(
            name="GpuFleetIdle",
            expression=f"1 - (sum({_REQUESTED}) or vector(0)) / sum({_ALLOCATABLE} > 0) > {IDLE_SHARE}",
            wait="6h",
            severity=Severity.TICKET,
            summary="{{ $value | humanizePercentage }} of the GPUs have been idle for six hours.",
            action="Lower the groups' min_size, or return reserved capacity, unless jobs are expected.",
        ),
    ),
)
"""Only in environments with GPUs."""
