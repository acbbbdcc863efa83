"""The interface between recorded values and the exporter that publishes them; `exporters.py` chooses an exporter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from observability.metrics.inventory import Kind, MetricSpec, get_spec

Series = Callable[[float], None]
"""One time series of a metric; a call with a value sets a gauge, increments a counter, or adds an observation to a histogram."""


class MetricsAddressError(OSError):
    """Metrics cannot be served on the configured address."""


class Recorder(ABC):
    """Records values of the inventory's metrics. An unknown name, a wrong kind or a wrong label raises ValueError.

    Attributes:
        url: where the metrics can be scraped; empty if this process serves none.
    """

    url: str = ""

    def __init__(self) -> None:
        self._series: dict[tuple[str, ...], Series] = {}

    def bind(self, name: str, **labels: str) -> Series:
        """Look up the series of a metric and its labels once; a call of the result takes about a microsecond."""
        return self._get_series(name, None, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._get_series(name, "gauge", labels)(value)

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Increment a counter by `value`."""
        self._get_series(name, "counter", labels)(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add an observation to a histogram."""
        self._get_series(name, "histogram", labels)(value)

    @abstractmethod
    def close(self) -> None:
        """Stop exporting; recorded values can no longer be scraped."""

    @abstractmethod
    def _make_series(self, spec: MetricSpec, labels: dict[str, str]) -> Series:
        """Make the exporter's series of a metric; `labels` have been checked against `spec`."""

    def _get_series(self, name: str, kind: Kind | None, labels: dict[str, str]) -> Series:
        spec = get_spec(name, labels=tuple(labels), kind=kind)
        key = (name, *(labels[label] for label in spec.labels))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._make_series(spec, labels)
        return series


class NullRecorder(Recorder):
    """Checks names, kinds and labels like every recorder, and drops the values."""

    def close(self) -> None:
        """Do nothing: nothing is exported."""

    def _make_series(self, spec: MetricSpec, labels: dict[str, str]) -> Series:
        del spec, labels
        return lambda value: None  # noqa: ARG005 - the value is dropped
