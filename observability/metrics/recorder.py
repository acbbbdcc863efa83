"""Recording of metrics, apart from where they go: what an exporter has to be able to do, and the choice of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from observability.metrics.inventory import Kind, MetricSpec, find

Record = Callable[[float], None]
"""Takes one value of one series: sets a gauge, adds to a counter, is observed by a histogram."""

Exporter = Literal["prometheus", "ray", "none"]


class MetricsAddressError(OSError):
    """The address that metrics were to be served on cannot be had."""


class Recorder(ABC):
    """Takes values of the inventory's metrics. A name or label that the inventory lacks is refused with ValueError.

    Attributes:
        url: where the metrics can be fetched; empty where nothing is served.
    """

    url: str = ""

    def __init__(self) -> None:
        self._records: dict[tuple[str, ...], Record] = {}

    def bind(self, name: str, **labels: str) -> Record:
        """The series of a metric and its labels, looked up once; calling it costs about a microsecond."""
        return self._record(name, None, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._record(name, "gauge", labels)(value)

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._record(name, "counter", labels)(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Let a histogram observe a value."""
        self._record(name, "histogram", labels)(value)

    @abstractmethod
    def close(self) -> None:
        """Stop exporting; what was recorded can no longer be fetched."""

    @abstractmethod
    def _open(self, spec: MetricSpec, labels: dict[str, str]) -> Record:
        """The exporter's own way to record a series; `labels` are the metric's, checked."""

    def _record(self, name: str, kind: Kind | None, labels: dict[str, str]) -> Record:
        spec = find(name, labels=tuple(labels), kind=kind)
        key = (name, *(labels[label] for label in spec.labels))
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = self._open(spec, labels)
        return record


class NullRecorder(Recorder):
    """Checks names and labels as every recorder does, and keeps nothing."""

    def close(self) -> None:
        """There is nothing to stop."""

    def _open(self, spec: MetricSpec, labels: dict[str, str]) -> Record:
        del spec, labels
        return _drop


def _drop(value: float) -> None:
    del value


def open_recorder(exporter: Exporter, *, host: str, port: int) -> Recorder:
    """The recorder of an exporter's name.

    Args:
        exporter: `prometheus` serves `/metrics` from this process, `ray` hands the values to Ray's metrics agent, `none` drops them.
        host: address to serve on; used by `prometheus` only.
        port: port to serve on, 0 for any free one; used by `prometheus` only.

    Raises:
        MetricsAddressError: the address cannot be served on.
    """
    if exporter == "prometheus":
        from observability.metrics.prometheus import PrometheusRecorder  # noqa: PLC0415

        return PrometheusRecorder(host=host, port=port)
    if exporter == "ray":
        from observability.metrics.ray import RayRecorder  # noqa: PLC0415

        return RayRecorder()
    return NullRecorder()
