"""The Ray exporter: the node's metrics agent receives the values and serves them to Prometheus.

The agent prefixes every name with `ray_` and adds its own labels (session, node, worker). It keeps no exact sum of a histogram but
estimates it from the buckets. It exports no NaN. It drops a gauge that has not been set for two report intervals of ten seconds
each (Ray 2.60, `_private/telemetry/open_telemetry_metric_recorder.py`), so the recorder sets its gauges again until it is closed.
"""

from __future__ import annotations

import threading

from ray.util.metrics import Counter, Gauge, Histogram

from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import Recorder, Series

_REFRESH_SECONDS = 5.0
"""Half a report interval, so that each of Ray's reports has every gauge."""


class RayRecorder(Recorder):
    """Sends the inventory's metrics to Ray; works only in a Ray worker or a process that has called `ray.init`.

    Args:
        refresh_seconds: time after which gauges are set again.
    """

    def __init__(self, *, refresh_seconds: float = _REFRESH_SECONDS) -> None:
        super().__init__()
        self._metrics = {spec.name: _make_metric(spec) for spec in INVENTORY}
        self._gauges: list[_GaugeSeries] = []
        self._refresh_seconds = refresh_seconds
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the agent drop the gauges of what has ended; Ray sends the last values when this process disconnects, or before."""
        self._is_closed.set()
        self._thread.join()

    def _refresh(self) -> None:
        while not self._is_closed.wait(self._refresh_seconds):
            for gauge in tuple(self._gauges):
                gauge.set_again()

    def _make_series(self, spec: MetricSpec, labels: dict[str, str]) -> Series:
        metric = self._metrics[spec.name]
        if isinstance(metric, Gauge):
            gauge = _GaugeSeries(metric, labels)
            self._gauges.append(gauge)
            return gauge.set
        if isinstance(metric, Counter):
            # Ray rejects an increment of 0; Prometheus accepts it, and the first 0 creates the series there.
            return lambda value: metric.inc(value, labels) if value > 0 else None
        return lambda value: metric.observe(value, labels)


class _GaugeSeries:
    """A gauge with its labels and its last value, which two threads set."""

    def __init__(self, gauge: Gauge, labels: dict[str, str]) -> None:
        self._gauge = gauge
        self._labels = labels
        self._value: float | None = None
        self._lock = threading.Lock()

    def set(self, value: float) -> None:
        """Set a new value."""
        with self._lock:
            self._value = value
            self._gauge.set(value, self._labels)

    def set_again(self) -> None:
        """Set the last value again, if there is one."""
        with self._lock:
            if self._value is not None:
                self._gauge.set(self._value, self._labels)


def _make_metric(spec: MetricSpec) -> Counter | Gauge | Histogram:
    if spec.kind == "gauge":
        return Gauge(spec.name, spec.help, tag_keys=spec.labels)
    if spec.kind == "counter":
        return Counter(spec.name, spec.help, tag_keys=spec.labels)
    return Histogram(spec.name, spec.help, boundaries=list(spec.buckets), tag_keys=spec.labels)
