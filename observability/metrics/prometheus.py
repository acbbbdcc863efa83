"""The exporter for Prometheus: `/metrics` served over HTTP by the process that trains."""

from __future__ import annotations

import socket
import threading
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
            raise MetricsAddressError(f"metrics cannot be served on {host}:{port}: {error.strerror}") from error
        self._host = host
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving and free the port."""
        # The server looks for a request to stop twice a second, or when a connection wakes it. A run's end need not wait for the former.
        stopping = threading.Thread(target=self._server.shutdown)
        stopping.start()
        with socket.create_connection((self._host, self._server.server_port)):
            stopping.join()
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
