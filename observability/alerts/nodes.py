"""Rules about nodes and capacity: nodes that take no jobs, nodes that are gone, memory and disks of Ray's nodes."""

from __future__ import annotations

from infra.spec.node_labels import SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from observability.alerts.expressions import COUNT, GPU_NODES, growth
from observability.alerts.model import Alert, Group, Severity

REPAIR_LIMIT = 0.2
"""Share of a node group's unhealthy nodes above which EKS repairs none, in groups of more than five (EKS user guide,
"Automatically repair nodes in EKS clusters"). The rule counts all GPU nodes."""

BURST_NODES = 3
"""Spot nodes gone within 15 minutes: more than single interruptions, so the pool is running dry."""

FAILED_SCALE_UPS = 2
"""In half an hour. The autoscaler tries another group after the first."""

MEMORY_SHARE = 0.95
"""Of a Ray node's memory. Close to its limit Ray's memory monitor, or else the kernel, kills workers."""

DISK_PERCENT = 90
"""A full disk takes no logs, no spilled objects and no temporary files of a checkpoint."""

_UNHEALTHY = f'kube_node_spec_taint{{key="{UNHEALTHY_TAINT.key}"}}'
_SPOT = f'kube_node_spec_taint{{key="{SPOT_TAINT.key}"}}'
_SCALED_DOWN = "sum(increase(cluster_autoscaler_scaled_down_nodes_total[15m])) or vector(0)"
_RAY_NODE = "namespace, training_job, pod"
_RAY_TEXT = "{{ $labels.pod }} of job {{ $labels.namespace }}/{{ $labels.training_job }}"
_NODE = "Node {{ $labels.node }}"

GPU_NODE_RULES = Group(
    name="gpu-nodes",
    alerts=(
        Alert(
            name="GpuNodeUnhealthy",
            expression=f"max by (node, value) ({_UNHEALTHY}) > 0",
            wait="5m",
            severity=Severity.TICKET,
            is_state=True,
            summary=f"{_NODE} takes no new jobs: {{{{ $labels.value }}}}.",
            action="EKS repairs it after 10 to 30 minutes where the group's `repair` is true. kubectl describe node shows why.",
        ),
        Alert(
            name="GpuNodeNotRepaired",
            expression=f"max by (node, value) ({_UNHEALTHY}) > 0",
            wait="1h",
            severity=Severity.PAGE,
            is_state=True,
            summary=f"{_NODE} has been unhealthy for an hour: {{{{ $labels.value }}}}.",
            action="Terminate the instance once no job runs on it; its group replaces it.",
        ),
        Alert(
            name="GpuNodesUnhealthy",
            expression=f"count({_UNHEALTHY}) / count({GPU_NODES}) > {REPAIR_LIMIT} and count({GPU_NODES}) > 5",
            wait="5m",
            severity=Severity.PAGE,
            summary="{{ $value | humanizePercentage }} of the GPU nodes are unhealthy, so EKS may repair none.",
            action="Look for a common cause (driver, AMI, network) before replacing them.",
        ),
        Alert(
            name="GpuNodeNotReady",
            expression=f'max by (node) (kube_node_spec_taint{{key="{START_UP_TAINT.key}"}}) > 0',
            wait="30m",
            severity=Severity.TICKET,
            is_state=True,
            summary=f"{_NODE} has not become ready for jobs in 30 minutes.",
            action="The log of gpu-system/node-gate names what it waits for.",
        ),
        Alert(
            name="GpuNodeLost",
            expression='max by (node) (kube_node_status_condition{condition="Ready",status="true"}) < 1 '
            f"and on (node) {GPU_NODES} > 0",
            wait="5m",
            severity=Severity.PAGE,
            is_state=True,
            summary=f"{_NODE} with GPUs has not been ready for 5 minutes, so its job has lost ranks.",
            action="kubectl describe node: a kubelet that stopped is an instance to terminate; its job restarts elsewhere.",
        ),
        Alert(
            name="GpuDevicesLost",
            expression=f"max by (node) ({GPU_NODES}) - on (node) "
            'max by (node) (kube_node_status_allocatable{resource="nvidia_com_gpu"}) > 0',
            wait="10m",
            severity=Severity.TICKET,
            summary=f"{_NODE} has {COUNT} GPUs out of order.",
            action="The device plugin's log names them. Terminate the instance once no job runs on it.",
        ),
        Alert(
            name="SpotNodesLost",
            expression=f"count(({_SPOT} offset 15m) unless on (node) kube_node_info) - ({_SCALED_DOWN}) "
            f">= {BURST_NODES} and on () count(kube_node_info) > 0",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} spot nodes have gone within 15 minutes.",
            action="EC2 takes capacity back. Jobs resume from checkpoints; move urgent ones to on-demand or reserved groups.",
        ),
    ),
)
"""Only in environments with GPUs."""

NODES = Group(
    name="capacity",
    alerts=(
        Alert(
            name="ScaleUpFails",
            expression=f"{growth('cluster_autoscaler_failed_scale_ups_total', by='reason', window='30m')} > {FAILED_SCALE_UPS}",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} node groups could not grow in half an hour: {{{{ $labels.reason }}}}.",
            action="The Auto Scaling group's activities have AWS's error: no capacity, a quota, or a launch template.",
        ),
        Alert(
            name="AutoscalerStopped",
            expression="max by (namespace) (cluster_autoscaler_cluster_safe_to_autoscale) < 1",
            wait="15m",
            severity=Severity.PAGE,
            is_state=True,
            summary="The cluster autoscaler in {{ $labels.namespace }} adds no nodes: too many are not ready.",
            action="Find out what the nodes that are not ready have in common; delete those that will not return.",
        ),
        Alert(
            name="RayNodeMemoryHigh",
            expression=f"max by ({_RAY_NODE}) (ray_node_mem_used) / on ({_RAY_NODE}) max by ({_RAY_NODE}) (ray_node_mem_total) "
            f"> {MEMORY_SHARE}",
            wait="5m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanizePercentage }}}} of the memory is in use in {_RAY_TEXT}.",
            action="Use fewer loader processes or smaller batches; close to the limit, Ray or the kernel kills workers.",
        ),
        Alert(
            name="RayWorkersKilled",
            expression=f"{growth('ray_memory_manager_worker_eviction_total', by=_RAY_NODE, window='15m')} > 0",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"Ray killed {COUNT} workers for lack of memory in {_RAY_TEXT}.",
            action="The ranks restart from a checkpoint, and meet the same limit: lower the memory of the loader or the dataset.",
        ),
        Alert(
            name="RayNodeDiskFull",
            expression=f"max by ({_RAY_NODE}) (ray_node_disk_utilization_percentage) > {DISK_PERCENT}",
            wait="5m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanize }}}} % of the disk is in use in {_RAY_TEXT}.",
            action="Look for files in /tmp and for spilled objects; a full disk ends the job.",
        ),
    ),
)
"""In every environment."""
