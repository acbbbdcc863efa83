"""What kube-state-metrics says about the objects of a fleet."""

from __future__ import annotations

from collections.abc import Sequence

from observability.benchmarks.fleet.axes import Axis, label_sets
from observability.benchmarks.fleet.scrapes import Contents, metrics_of, rows
from observability.benchmarks.fleet.shape import GPU_GROUP, GPU_TYPE, Fleet, Pod

_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_CPU_AND_MEMORY = ("cpu core", "memory byte")
_NODE_RESOURCES = (*_CPU_AND_MEMORY, "pods integer", "ephemeral_storage byte", "hugepages_2Mi byte")
_GPU_RESOURCES = ("nvidia_com_gpu integer", "vpc_amazonaws_com_efa integer")
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_RESOURCE = ("resource", "unit")
_CRON_JOBS = ("mlflow mlflow-cleanup", "mlflow mlflow-backup", "mlflow mlflow-restore-drill")
_DEPLOYMENTS = (
    "mlflow mlflow",
    "kuberay-system kuberay-operator",
    "kueue-system kueue-controller-manager",
    "kube-system coredns",
    "kube-system cluster-autoscaler",
    "monitoring kube-prometheus-stack-operator",
    "monitoring kube-prometheus-stack-grafana",
)


def kube_state_metrics(fleet: Fleet) -> Contents:
    """Metrics with the label sets of their series: nodes, pods, Deployments and CronJobs."""
    objects: dict[str, list[list[Axis]]] = {
        "kube_node_": [_nodes(fleet.cpu_nodes), _nodes(fleet.gpu_nodes, resources=_GPU_RESOURCES)],
        "kube_pod_": _pods(fleet),
        "kube_deployment_": [[rows(["namespace", "deployment"], *_DEPLOYMENTS)]],
        "kube_cronjob_": [[rows(["namespace", "cronjob"], *_CRON_JOBS)]],
    }
    for metric in metrics_of("kube-state-metrics"):
        groups = next(groups for prefix, groups in objects.items() if metric.name.startswith(prefix))
        yield metric, [labels for axes in groups for labels in label_sets(metric.labels, axes)]


def _nodes(nodes: Sequence[str], *, resources: Sequence[str] = ()) -> list[Axis]:
    """Nodes that are ready; those with GPUs have a taint."""
    return [
        Axis.of("node", nodes),
        rows(["key", "value", "effect"], *(["nvidia.com/gpu true NoSchedule"] if resources else [])),
        Axis.of("condition", _CONDITIONS),
        Axis.of("status", ["true", "false", "unknown"]),
        rows(_RESOURCE, *_NODE_RESOURCES, *resources),
        rows(
            ["label_ray_train_platform_group", "label_node_kubernetes_io_instance_type"],
            f"{GPU_GROUP} {GPU_TYPE}" if resources else "system m7i.2xlarge",
        ),
    ]


def _pods(fleet: Fleet) -> list[list[Axis]]:
    """Pods of Ray's workers, which have GPUs, and all others."""
    workers = {pod for run in fleet.training for pod in run.workers}
    others = [pod for pods in fleet.pods_by_node.values() for pod in pods if pod not in workers]
    return [
        _pod_axes(list(workers), "ray-worker", (*_CPU_AND_MEMORY, *_GPU_RESOURCES)),
        _pod_axes(others, "main", _CPU_AND_MEMORY),
    ]


def _pod_axes(pods: Sequence[Pod], container: str, resources: Sequence[str]) -> list[Axis]:
    return [
        Axis(("namespace", "pod", "node"), [(pod.namespace, pod.name, pod.node) for pod in pods]),
        Axis.of("container", [container]),
        rows(_RESOURCE, *resources),
        Axis.of("phase", _PHASES),
    ]
