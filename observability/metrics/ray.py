"""The exporter for Ray: values go to the node's metrics agent, which serves them to Prometheus.

The agent puts `ray_` before every name and adds labels of its own (session, node, worker). A histogram's sum there is an approximation from
its buckets, since the agent keeps no exact one. A gauge that is not set again disappears after two of the agent's report intervals.
"""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge, Histogram

from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import Record, Recorder


class RayRecorder(Recorder):
    """Hands the inventory's metrics to Ray; only in a process that Ray started or that has connected to it."""

    def __init__(self) -> None:
        super().__init__()
        self._metrics = {spec.name: _make(spec) for spec in INVENTORY}

    def close(self) -> None:
        """There is nothing to stop: the agent is Ray's, and sends what it holds when this process ends."""

    def _open(self, spec: MetricSpec, labels: dict[str, str]) -> Record:
        metric = self._metrics[spec.name]
        if isinstance(metric, Gauge):
            return lambda value: metric.set(value, labels)
        if isinstance(metric, Counter):
            # Ray refuses to add nothing; Prometheus does not, and the first 0 makes the series known.
            return lambda value: metric.inc(value, labels) if value > 0 else None
        return lambda value: metric.observe(value, labels)


def _make(spec: MetricSpec) -> Counter | Gauge | Histogram:
    if spec.kind == "gauge":
        return Gauge(spec.name, spec.help, tag_keys=spec.labels)
    if spec.kind == "counter":
        return Counter(spec.name, spec.help, tag_keys=spec.labels)
    return Histogram(spec.name, spec.help, boundaries=list(spec.buckets), tag_keys=spec.labels)
