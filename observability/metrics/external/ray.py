"""Metrics of Ray's own components, from the ports of heads and workers."""

from __future__ import annotations

from observability.metrics.external.model import RAY_POD_MONITOR_LABELS, ScrapedMetric, Source

_VERSION = "2.60.0"


def _source(file: str) -> Source:
    return Source(component="Ray", project="ray", version=_VERSION, file=file, target_labels=RAY_POD_MONITOR_LABELS)


_REPORTER = _source("dashboard/modules/reporter/reporter_agent.py")
_PANELS = _source("dashboard/modules/metrics/dashboards/default_dashboard_panels.py")


def _of_node(name: str, text: str, *, unit: str) -> ScrapedMetric:
    return ScrapedMetric(
        name=f"ray_node_{name}", kind="gauge", unit=unit, help=text, labels=("IsHeadNode",), source=_REPORTER
    )


def _of_cluster(name: str, text: str, *labels: str, unit: str = "") -> ScrapedMetric:
    return ScrapedMetric(name=f"ray_{name}", kind="gauge", unit=unit, help=text, labels=labels, source=_PANELS)


RAY_METRICS = (
    _of_node("mem_used", "Memory in use by a Ray node.", unit="bytes"),
    _of_node("mem_total", "Memory limit of a Ray node.", unit="bytes"),
    _of_node("disk_utilization_percentage", "Share of the disk of a Ray node in use, from 0 to 100.", unit="percent"),
    ScrapedMetric(
        name="ray_memory_manager_worker_eviction_total",
        kind="counter",
        help="Tasks and actors that Ray's memory monitor killed.",
        labels=("Name",),
        source=_PANELS,
    ),
    _of_node("cpu_utilization", "CPU in use by a Ray node, from 0 to 100.", unit="percent"),
    _of_node("disk_io_read_speed", "Bytes read from disk per second.", unit="bytes_per_second"),
    _of_node("disk_io_write_speed", "Bytes written to disk per second.", unit="bytes_per_second"),
    _of_node("network_receive_speed", "Bytes received per second.", unit="bytes_per_second"),
    _of_node("network_send_speed", "Bytes sent per second.", unit="bytes_per_second"),
    _of_cluster(
        "object_store_memory", "Objects by location: in shared memory, in files, or spilled.", "Location", unit="bytes"
    ),
    _of_cluster("tasks", "Tasks by state, as each component counts them.", "State", "Source", "IsRetry"),
    _of_cluster("actors", "Actors by state, as each component counts them.", "State", "Source"),
    _of_cluster("resources", "Resources of a node by state: used or available.", "Name", "State"),
)
