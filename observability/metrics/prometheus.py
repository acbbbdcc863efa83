"""The exporter for Prometheus: `/metrics` served over HTTP by the process that trains."""

from __future__ import annotations

from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import MetricsAddressError, Record, Recorder

_Metric: TypeAlias = Counter | Gauge | Histogram


class PrometheusRecorder(Recorder):
    """Serves the inventory from a registry of its own, without the metrics of the interpreter that the default one holds.

    Raises:
        MetricsAddressError: host and port cannot be served on.
    """

    def __init__(self, *, host: str, port: int) -> None:
        super().__init__()
        # A series `<name>_created` beside every counter and histogram would be in nobody's inventory.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._metrics = {spec.name: _make(spec, self._registry) for spec in INVENTORY}
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise MetricsAddressError(
                error.errno,
                f"metrics cannot be served on {host}:{port}: {error.strerror}; choose another port, or 0 for any free one",
            ) from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving and free the port; further calls do nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _open(self, spec: MetricSpec, labels: dict[str, str]) -> Record:
        series = self._metrics[spec.name].labels(**labels)
        if isinstance(series, Gauge):
            return series.set
        if isinstance(series, Counter):
            return series.inc
        return series.observe


def _make(spec: MetricSpec, registry: CollectorRegistry) -> _Metric:
    if spec.kind == "gauge":
        return Gauge(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry)
    if spec.kind == "counter":
        return Counter(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry)
    return Histogram(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry, buckets=spec.buckets)
