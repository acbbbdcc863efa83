"""Samples of every metric of the inventory over some hours of a made-up cluster, in OpenMetrics' format.

Gauges are 1, and counters grow by 1 a second. Two teams share the cluster: `vision` trains a ResNet on two nodes of two GPUs, and
`research` searches for hyperparameters on a third node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TextIO

from infra.spec.node_labels import SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from observability.metrics.external.model import ScrapedMetric
from observability.metrics.scraped import SCRAPED
from observability.time_classes import CLASSES

Labels = Mapping[str, str]

STEP_SECONDS = 60

RUNS = (
    {"namespace": "vision", "training_job": "resnet", "run": "resnet50-imagenet"},
    *({"namespace": "research", "training_job": "lm-search", "run": f"lm-search-{one:04}"} for one in range(3)),
)
PODS = (
    {"namespace": "vision", "training_job": "resnet", "pod": "resnet-head"},
    {"namespace": "vision", "training_job": "resnet", "pod": "resnet-worker-0", "node": "gpu-a"},
    {"namespace": "vision", "training_job": "resnet", "pod": "resnet-worker-1", "node": "gpu-b"},
    {"namespace": "research", "training_job": "lm-search", "pod": "lm-search-head"},
    {"namespace": "research", "training_job": "lm-search", "pod": "lm-search-worker-0", "node": "gpu-c"},
)
NODES = ("gpu-a", "gpu-b", "gpu-c", "gpu-d")

_VALUES: Mapping[str, Sequence[str]] = {
    "part": ("data", "forward", "backward", "optimizer", "checkpoint", "other"),
    "class": CLASSES,
    "rank": ("0", "1", "2", "3"),
    "state": ("allocated", "reserved"),
    "status": ("running", "done", "stopped", "failed"),
    "IsHeadNode": ("true",),
    "Location": ("MMAP_SHM", "SPILLED"),
    "State": ("USED", "AVAILABLE"),
    "Name": ("GPU", "CPU"),
    "xid": ("48", "63", "13"),
    "cluster_queue": ("vision", "research"),
    "replica_role": ("leader",),
    "reason": ("Preempted", "PodsReadyTimeout"),
    "resource": ("nvidia_com_gpu",),
    "condition": ("Ready",),
    "phase": ("Running",),
    "split": ("validation",),
    "Source": ("gcs",),
    "severity": ("warning",),
    "node": NODES,
    "key": (SPOT_TAINT.key, START_UP_TAINT.key, UNHEALTHY_TAINT.key),
    "value": ("true",),
    "effect": ("NoSchedule",),
    "deployment_status": ("Running", "Initializing", "Failed"),
    "deployment": ("kuberay-operator", "mlflow"),
    "name": ("resnet",),
    "alertstate": ("firing",),
    "alertname": ("TrainingDataBound", "TrainingStraggler"),
}

_SPECIAL: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ALERTS": {"namespace": ("vision",), "training_job": ("resnet",), "run": ("resnet50-imagenet",), "node": ("",)},
    "kube_deployment_status_replicas_available": {"namespace": ("kuberay-system",)},
    "ray_tasks": {"State": ("RUNNING", "PENDING_NODE_ASSIGNMENT")},
    "ray_actors": {"State": ("ALIVE", "DEAD")},
    "kueue_pending_workloads": {"status": ("active", "inadmissible")},
    "kueue_cluster_queue_status": {"status": ("active",)},
    "kueue_cluster_queue_resource_usage": {"resource": ("nvidia.com/gpu",)},
    "kueue_cluster_queue_nominal_quota": {"resource": ("nvidia.com/gpu",)},
    "kube_node_status_condition": {"status": ("true",)},
    "kuberay_cluster_condition_provisioned": {"condition": ("false",), "name": ("resnet",)},
    "cluster_autoscaler_nodes_count": {"state": ("ready", "notStarted")},
    "cluster_autoscaler_failed_scale_ups_total": {"reason": ("cloudProviderError",)},
    "ray_memory_manager_worker_eviction_total": {"Name": ("rank",)},
}
"""Values of labels that differ from one metric to another."""

_TARGET = {"job": "monitoring/ray-heads", "instance": "10.0.0.1:8080", "endpoint": "metrics", "container": "main"}
_TAINTED = {SPOT_TAINT.key: NODES[2:], START_UP_TAINT.key: NODES[3:], UNHEALTHY_TAINT.key: NODES[3:]}
_OF_PODS = ("kube_pod_container_resource_requests", "kube_pod_status_phase", "kube_pod_status_unschedulable")

RECORDED: Mapping[str, tuple[str, ...]] = {
    "node:gpu_node_dollars_per_hour:price": ("node",),
    "node:idle_gpu_node_dollars_per_hour:price": ("node",),
    "node:nvidia_gpus_requested:sum": ("node",),
    "run:ray_rtp_train_exposed_communication:ratio_rate10m": ("namespace", "training_job", "run"),
    "run:ray_rtp_train_lost_time:ratio_rate1h": ("namespace", "training_job", "run"),
    "run:ray_rtp_train_restarts:max": ("namespace", "training_job", "run"),
    "run:ray_rtp_train_samples_per_second:avg10m": ("namespace", "training_job", "run"),
    "team:dollars:budget1d": ("team",),
    "team:dollars:sum1d": ("team",),
    "team:ray_rtp_train_cost_dollars_per_hour:rate1h": ("team",),
    "team:ray_rtp_train_lost_dollars_per_hour:rate1h": ("team",),
    "training_job:container_network_receive_bytes:rate5m": ("namespace", "training_job"),
    "training_job:container_network_transmit_bytes:rate5m": ("namespace", "training_job"),
}
"""Series of the recording rules that dashboards use, with their labels."""


def write(file: Path, *, end: float, hours: float) -> None:
    """Write the samples of every metric up to a time."""
    count = int(hours * 3600 / STEP_SECONDS)
    times = [end - one * STEP_SECONDS for one in range(count, -1, -1)]
    gauge, counter = [1.0] * len(times), [float(STEP_SECONDS * number) for number in range(1, len(times) + 1)]
    with file.open("w", encoding="utf-8") as output:
        for metric in SCRAPED:
            for labels in label_sets(metric):
                if metric.kind == "histogram":
                    for bound in ("1", "10", "+Inf"):
                        _write(output, f"{metric.name}_bucket", {**labels, "le": bound}, times, counter)
                    _write(output, f"{metric.name}_count", labels, times, counter)
                    _write(output, f"{metric.name}_sum", labels, times, counter)
                else:
                    _write(output, metric.name, labels, times, gauge if metric.kind == "gauge" else counter)
        for name, names in RECORDED.items():
            for labels in _recorded_sets(names):
                _write(output, name, labels, times, gauge)
        output.write("# EOF\n")


def label_sets(metric: ScrapedMetric) -> Iterator[Labels]:
    """Labels of the series of a metric, without those of a histogram's buckets."""
    values = {**_VALUES, **_SPECIAL.get(metric.name, {})}
    for base in _bases(metric):
        own = [name for name in metric.labels if name not in base]
        for chosen in product(*(values.get(name, (name,)) for name in own)):
            series = (
                dict.fromkeys(metric.source.target_labels, "")
                | _TARGET
                | dict(base)
                | dict(zip(own, chosen, strict=True))
            )
            if metric.name != "kube_node_spec_taint" or series["node"] in _TAINTED[series["key"]]:
                yield series


def _bases(metric: ScrapedMetric) -> Sequence[Labels]:
    """What the series of a metric belong to: runs, pods, GPUs, or nothing."""
    component = metric.source.component
    if "search" in metric.labels:
        return ({"namespace": "research", "training_job": "lm-search", "search": "lm-search"},)
    if component == "trainer":
        return RUNS
    if component == "Ray" or metric.name in {"up", *_OF_PODS}:
        return PODS
    if component == "DCGM exporter":
        return tuple({**_owner(node), "node": node} for node in NODES)
    if component == "KubeRay":
        return tuple({"namespace": one["namespace"]} for one in (RUNS[0], RUNS[1]))
    return ({},)


def _owner(node: str) -> Labels:
    found = [{"namespace": pod["namespace"], "pod": pod["pod"]} for pod in PODS if pod.get("node") == node]
    return found[0] if found else {"namespace": "gpu-system", "pod": "dcgm-exporter"}


def _recorded_sets(names: Sequence[str]) -> Iterator[Labels]:
    if "run" in names:
        yield from RUNS
    elif "training_job" in names:
        yield from ({name: run[name] for name in names} for run in RUNS)
    elif "team" in names:
        yield from ({"team": team} for team in sorted({run["namespace"] for run in RUNS}))
    else:
        yield from ({"node": node} for node in NODES)


def _write(output: TextIO, name: str, labels: Labels, times: Sequence[float], values: Sequence[float]) -> None:
    text = ",".join(f'{label}="{value}"' for label, value in labels.items() if value)
    output.writelines(f"{name}{{{text}}} {value:.9g} {time:.0f}\n" for time, value in zip(times, values, strict=True))
