"""The Ray exporter: the node's metrics agent receives the values and serves them to Prometheus.

The agent prefixes every name with `ray_` and adds its own labels (session, node, worker). It keeps no exact sum of a histogram but
estimates it from the buckets. It drops a gauge that has not been set for two of its report intervals.
"""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge, Histogram

from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import Recorder, Series


class RayRecorder(Recorder):
    """Sends the inventory's metrics to Ray; works only in a Ray worker or a process that has called `ray.init`."""

    def __init__(self) -> None:
        super().__init__()
        self._metrics = {spec.name: _make_metric(spec) for spec in INVENTORY}

    def close(self) -> None:
        """Do nothing: the agent belongs to Ray, which flushes its metrics when this process ends."""

    def _make_series(self, spec: MetricSpec, labels: dict[str, str]) -> Series:
        metric = self._metrics[spec.name]
        if isinstance(metric, Gauge):
            return lambda value: metric.set(value, labels)
        if isinstance(metric, Counter):
            # Ray rejects an increment of 0; Prometheus accepts it, and the first 0 creates the series there.
            return lambda value: metric.inc(value, labels) if value > 0 else None
        return lambda value: metric.observe(value, labels)


def _make_metric(spec: MetricSpec) -> Counter | Gauge | Histogram:
    if spec.kind == "gauge":
        return Gauge(spec.name, spec.help, tag_keys=spec.labels)
    if spec.kind == "counter":
        return Counter(spec.name, spec.help, tag_keys=spec.labels)
    return Histogram(spec.name, spec.help, boundaries=list(spec.buckets), tag_keys=spec.labels)
