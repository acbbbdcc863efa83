"""Cases of `observability.alerts.nodes` and `cost`."""

from __future__ import annotations

from infra.spec.node_labels import SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from tests.observability.alerts.cases.case import Case, flat, later, series

_POD = {"namespace": "vision", "training_job": "first", "pod": "first-w1"}
_POD_TEXT = "first-w1 of job vision/first"
_NODES = [f"n{number}" for number in range(1, 11)]


def _gpus(node: str, kind: str = "capacity") -> str:
    return series(f"kube_node_status_{kind}", node=node, resource="nvidia_com_gpu", unit="integer")


def _taint(node: str, key: str, value: str = "hardware") -> str:
    return series("kube_node_spec_taint", node=node, key=key, value=value, effect="NoSchedule")


def _info(node: str) -> str:
    return series("kube_node_info", node=node)


_UNHEALTHY = _taint("n1", UNHEALTHY_TAINT.key)
_STARTING = _taint("n1", START_UP_TAINT.key)
_READY = series("kube_node_status_condition", node="n1", condition="Ready", status="true")
_SPOT = {_taint(node, SPOT_TAINT.key): "1+0x10 stale" for node in _NODES[:3]}
_SPOT_NODES = {_info(node): "1+0x10 stale" for node in _NODES[:3]} | {_info("system"): flat(1, 15)}
_SCALED_DOWN = series("cluster_autoscaler_scaled_down_nodes_total", reason="empty")
_FAILED = series("cluster_autoscaler_failed_scale_ups_total", reason="timeout")
_SAFE = series("cluster_autoscaler_cluster_safe_to_autoscale", namespace="kube-system")
_USED, _TOTAL = (series(f"ray_node_mem_{kind}", **_POD, IsHeadNode="false") for kind in ("used", "total"))
_KILLED = series("ray_memory_manager_worker_eviction_total", **_POD, Name="RayTrainWorker")
_DISK = series("ray_node_disk_utilization_percentage", **_POD)

_USE = series("DCGM_FI_DEV_GPU_UTIL", node="n1", gpu="3", namespace="vision", pod="first-w1")
_EXPORTERS_USE = series("DCGM_FI_DEV_GPU_UTIL", node="n1", gpu="3", namespace="gpu-system", pod="dcgm-exporter-x")
_REQUEST = series(
    "kube_pod_container_resource_requests", namespace="vision", pod="first-w1", node="n1", resource="nvidia_com_gpu"
)
_RUNNING = series("kube_pod_status_phase", namespace="vision", pod="first-w1", phase="Running")
_USED_NODE = {_REQUEST: flat(8, 370), _RUNNING: flat(1, 370)}

CASES = {
    "GpuNodeUnhealthy": Case(
        at=6,
        series={_UNHEALTHY: flat(1, 6)},
        labels={"node": "n1", "value": "hardware"},
        summary="Node n1 takes no new jobs: hardware.",
        silent={"another taint": {_UNHEALTHY: "", _taint("n1", "node.kubernetes.io/unschedulable"): flat(1, 6)}},
    ),
    "GpuNodeNotRepaired": Case(
        at=61,
        series={_UNHEALTHY: flat(1, 61)},
        labels={"node": "n1", "value": "hardware"},
        summary="Node n1 has been unhealthy for an hour: hardware.",
        silent={"repaired after 50 minutes": {_UNHEALTHY: "1+0x50 stale"}},
    ),
    "GpuNodesUnhealthy": Case(
        at=6,
        series={_gpus(node): flat(8, 6) for node in _NODES}
        | {_taint(node, UNHEALTHY_TAINT.key): flat(1, 6) for node in _NODES[:3]},
        labels={},
        summary="30% of the GPU nodes are unhealthy, so EKS may repair none.",
        silent={
            "a fifth": {_taint("n3", UNHEALTHY_TAINT.key): ""},
            "five nodes": {_gpus(node): "" for node in _NODES[5:]},
        },
    ),
    "GpuNodeNotReady": Case(
        at=31,
        series={_STARTING: flat(1, 31)},
        labels={"node": "n1"},
        summary="Node n1 has not become ready for jobs in 30 minutes.",
        silent={"ready after 25 minutes": {_STARTING: "1+0x25 stale"}},
    ),
    "GpuNodeLost": Case(
        at=6,
        series={_READY: flat(0, 6), _gpus("n1"): flat(8, 6)},
        labels={"node": "n1"},
        summary="Node n1 with GPUs has not been ready for 5 minutes, so its job has lost ranks.",
        silent={
            "a node without GPUs": {_gpus("n1"): ""},
            "not ready for three minutes": {_READY: "0+0x3 1+0x3"},
            "the node is removed": {_READY: "0+0x3 stale", _gpus("n1"): "8+0x3 stale"},
        },
    ),
    "GpuDevicesLost": Case(
        at=11,
        series={_gpus("n1"): flat(8, 11), _gpus("n1", "allocatable"): flat(7, 11)},
        labels={"node": "n1"},
        summary="Node n1 has 1 GPUs out of order.",
        silent={"all work": {_gpus("n1", "allocatable"): flat(8, 11)}},
    ),
    "SpotNodesLost": Case(
        at=15,
        series=_SPOT | _SPOT_NODES,
        labels={},
        summary="3 spot nodes have gone within 15 minutes.",
        silent={
            "two nodes": {_taint("n3", SPOT_TAINT.key): ""},
            "the autoscaler removed them": {_SCALED_DOWN: "0+0x9 3+0x6"},
            "kube-state-metrics is gone": {_info("system"): "1+0x10 stale"},
        },
    ),
    "ScaleUpFails": Case(
        at=45,
        series={_FAILED: later(40, flat(3, 5))},
        labels={"reason": "timeout"},
        summary="3 node groups could not grow in half an hour: timeout.",
        silent={"at the limit": {_FAILED: later(40, flat(2, 5))}, "the counter restarts": {_FAILED: "9+0x40 4+0x5"}},
    ),
    "AutoscalerStopped": Case(
        at=16,
        series={_SAFE: flat(0, 16)},
        labels={"namespace": "kube-system"},
        summary="The cluster autoscaler in kube-system adds no nodes: too many are not ready.",
        silent={"it acts": {_SAFE: flat(1, 16)}},
    ),
    "RayNodeMemoryHigh": Case(
        at=6,
        series={_USED: flat(96, 6), _TOTAL: flat(100, 6)},
        labels=_POD,
        summary=f"96% of the memory is in use in {_POD_TEXT}.",
        silent={"at the limit": {_USED: flat(95, 6)}},
    ),
    "RayWorkersKilled": Case(
        at=25,
        series={_KILLED: later(20, flat(1, 5))},
        labels=_POD,
        summary=f"Ray killed 1 workers for lack of memory in {_POD_TEXT}.",
        silent={"longer ago": {_KILLED: flat(1, 25)}, "the counter restarts": {_KILLED: "5+0x20 1+0x5"}},
    ),
    "RayNodeDiskFull": Case(
        at=6,
        series={_DISK: flat(91.5, 6)},
        labels=_POD,
        summary=f"91.5 % of the disk is in use in {_POD_TEXT}.",
        silent={"at the limit": {_DISK: flat(90, 6)}},
    ),
    "GpuAllocatedIdle": Case(
        at=61,
        series={_USE: flat(4, 61)},
        labels={"node": "n1", "gpu": "3", "namespace": "vision", "pod": "first-w1"},
        summary="GPU 3 of vision/first-w1 on node n1 is used for 4 % of the time.",
        silent={
            "at the limit": {_USE: flat(5, 61)},
            "a minute of work in ten": {
                _USE: "0+0x8 90+0x0 0+0x8 90+0x0 0+0x8 90+0x0 0+0x8 90+0x0 0+0x8 90+0x0 0+0x8 90+0x0"
            },
            "a GPU that no pod has": {_USE: "", _EXPORTERS_USE: flat(0, 61)},
        },
    ),
    "GpuNodeIdle": Case(
        at=125,
        series={_gpus("n1"): flat(8, 125)},
        labels={"node": "n1"},
        summary="No pod has used the 8 GPUs of node n1 for two hours.",
        silent={
            "a pod has them": {_REQUEST: flat(8, 125), _RUNNING: flat(1, 125)},
            "a pod had them an hour ago": {_REQUEST: "8+0x60 stale", _RUNNING: "1+0x60 stale"},
        },
    ),
    "GpuFleetIdle": Case(
        at=370,
        series={_gpus("n1", "allocatable"): flat(8, 370), _gpus("n2", "allocatable"): flat(16, 370)} | _USED_NODE,
        labels={},
        summary="66.67% of the GPUs have been idle for six hours.",
        silent={
            "half of them": {_gpus("n2", "allocatable"): flat(8, 370)},
            "there are none": {_gpus("n1", "allocatable"): "", _gpus("n2", "allocatable"): ""},
        },
    ),
}
