"""The Prometheus exporter: the training process serves `/metrics` over HTTP."""

from __future__ import annotations

import socket
import threading
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import MetricsAddressError, Recorder, Series

_Metric: TypeAlias = Counter | Gauge | Histogram


class PrometheusRecorder(Recorder):
    """Serves the inventory from its own registry, because the default registry adds metrics of the Python process.

    Raises:
        MetricsAddressError: the address is in use or does not belong to this machine.
    """

    def __init__(self, *, host: str, port: int) -> None:
        super().__init__()
        # The client adds a series `<name>_created` to every counter and histogram, which the inventory does not have.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._metrics = {spec.name: _make_metric(spec, self._registry) for spec in INVENTORY}
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise MetricsAddressError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self._host = host
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop the server and free its port."""
        # The server checks for a shutdown request twice a second and after each connection, so connect to end the wait early.
        stopping = threading.Thread(target=self._server.shutdown)
        stopping.start()
        with socket.create_connection((self._host, self._server.server_port)):
            stopping.join()
        self._server.server_close()
        self._thread.join()

    def _make_series(self, spec: MetricSpec, labels: dict[str, str]) -> Series:
        child = self._metrics[spec.name].labels(**labels)
        if isinstance(child, Gauge):
            return child.set
        if isinstance(child, Counter):
            return child.inc
        return child.observe


def _make_metric(spec: MetricSpec, registry: CollectorRegistry) -> _Metric:
    if spec.kind == "gauge":
        return Gauge(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry)
    if spec.kind == "counter":
        return Counter(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry)
    return Histogram(spec.name, spec.help, spec.labels, unit=spec.unit, registry=registry, buckets=spec.buckets)
