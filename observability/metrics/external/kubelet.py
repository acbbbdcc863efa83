"""Metrics of the containers of a node, which the kubelet exports (cAdvisor).

Traffic counts in the network namespace of a pod: what its processes send over TCP, to other ranks, storage and services. What the node
sends for it is not in it (a mounted EFS), nor what bypasses the kernel (EFA). For EFA there is nothing: node exporter's collector of
InfiniBand reads counters that EFA devices do not have (prometheus/node_exporter#3670).
"""

from __future__ import annotations

from observability.metrics.external.model import SERVICE_MONITOR_LABELS, ScrapedMetric, Source

_CADVISOR = Source(
    component="kubelet",
    project="kubernetes/kubernetes",
    version="1.35.4",
    file="vendor/github.com/google/cadvisor/metrics/prometheus.go",
    target_labels=(*SERVICE_MONITOR_LABELS, "node"),
)


def _traffic(direction: str, text: str) -> ScrapedMetric:
    return ScrapedMetric(
        name=f"container_network_{direction}_bytes_total",
        kind="counter",
        unit="bytes",
        help=text,
        labels=("namespace", "pod"),
        source=_CADVISOR,
    )


KUBELET_METRICS = (
    _traffic("receive", "Bytes that a pod has received."),
    _traffic("transmit", "Bytes that a pod has sent."),
)
