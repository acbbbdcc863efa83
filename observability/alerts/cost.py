"""Rules about GPUs that are paid for and do nothing.

The dollars here are those of whole nodes, at the prices that the stack records; those of runs are in `observability.alerts.run_cost`.
"""

from __future__ import annotations

from infra.spec.cluster_names import GPU_NAMESPACE, NODE_PRICES
from observability.alerts.expressions import COUNT, GPU_NODES
from observability.alerts.model import Alert, Given, Group, Recording, Severity

IDLE_PERCENT = 5
"""Utilization below which a GPU does nothing but keep a process."""

IDLE_SHARE = 0.5
"""Share of the GPUs that no pod requests."""

_REQUESTED = "node:nvidia_gpus_requested:sum"
_ALLOCATABLE = 'kube_node_status_allocatable{resource="nvidia_com_gpu"}'
_RUNNING = 'max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1'

_DOLLARS = "node:gpu_node_dollars_per_hour:price"
_IDLE_DOLLARS = "node:idle_gpu_node_dollars_per_hour:price"


def _labels_of_nodes() -> str:
    """Every node, with the labels by which its price is known."""
    grouped = 'label_replace(kube_node_labels, "group", "$1", "label_ray_train_platform_group", "(.+)")'
    return f'label_replace({grouped}, "instance_type", "$1", "label_node_kubernetes_io_instance_type", "(.+)")'


COST = Group(
    name="gpu-cost",
    given=(Given(name=NODE_PRICES, labels=("group", "instance_type")),),
    recordings=(
        Recording(
            name=_REQUESTED,
            expression='sum by (node) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} '
            f"and on (namespace, pod) {_RUNNING})",
        ),
        Recording(
            name=_DOLLARS,
            expression=f"max by (node) ({_labels_of_nodes()} * on (group, instance_type) group_left () {NODE_PRICES})",
        ),
        # Also a node that starts: it is paid for from its launch.
        Recording(name=_IDLE_DOLLARS, expression=f"{_DOLLARS} unless on (node) {_REQUESTED} > 0"),
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
