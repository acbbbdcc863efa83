"""The choice of an exporter by its configured name."""

from __future__ import annotations

from typing import Literal

from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.recorder import NullRecorder, Recorder

Exporter = Literal["prometheus", "ray", "none"]


def open_recorder(exporter: Exporter, *, host: str, port: int) -> Recorder:
    """Start an exporter and return its recorder.

    Args:
        exporter: `prometheus` serves `/metrics` from this process, `ray` sends values to Ray's metrics agent, `none` drops them.
        host: address to listen on; used by `prometheus` only.
        port: port to listen on, 0 for an ephemeral one; used by `prometheus` only.

    Raises:
        MetricsAddressError: the address is in use or does not belong to this machine.
    """
    if exporter == "prometheus":
        return PrometheusRecorder(host=host, port=port)
    if exporter == "ray":
        from observability.metrics.ray import RayRecorder  # noqa: PLC0415 - imports Ray, which torchrun's ranks run without

        return RayRecorder()
    return NullRecorder()
