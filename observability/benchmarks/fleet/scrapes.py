"""What Prometheus scrapes: configurations, targets and pages of the whole fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from observability.benchmarks.fleet.axes import Axis, Labels, label_sets
from observability.benchmarks.fleet.page import Page
from observability.benchmarks.fleet.shape import Pod, Run
from observability.metrics.external.model import ScrapedMetric
from observability.metrics.scraped import SCRAPED

Contents = Iterator[tuple[ScrapedMetric, Iterable[Labels]]]
"""Metrics of a page, each with the label sets of its series."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target: the labels that scraping adds, and what it serves."""

    labels: Labels
    page: Page


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """A scrape configuration of Prometheus.

    Attributes:
        name: of the exporter.
        seconds: interval.
        honor_labels: the exporter's own labels win over those of the target.
    """

    name: str
    seconds: int
    targets: Sequence[Target]
    honor_labels: bool = False

    @property
    def series(self) -> int:
        """Series of all its targets."""
        return sum(target.page.series for target in self.targets)


OMITTED = frozenset({"kube_pod_status_unschedulable", "DCGM_EXP_XID_ERRORS_COUNT"})
"""Metrics that have series only where something is wrong: a pod that fits on no node, an XID."""


def metrics_of(component: str, *, prefix: str = "") -> list[ScrapedMetric]:
    """Metrics of the inventory that a component of a healthy fleet exports, with names that begin like this."""
    return [
        metric
        for metric in SCRAPED
        if metric.source.component == component and metric.name.startswith(prefix) and metric.name not in OMITTED
    ]


def contents(metrics: Iterable[ScrapedMetric], axes: Sequence[Axis], *, more: Sequence[str] = ()) -> Contents:
    """Metrics with every combination of the axes' values.

    Args:
        metrics: of one exporter.
        axes: values of their labels.
        more: labels that the exporter has besides those of the inventory, which leaves out unbounded ones.
    """
    for metric in metrics:
        yield metric, label_sets(tuple(dict.fromkeys((*metric.labels, *more))), axes)


def service_labels(pod: Pod, *, service: str, port: int, job: str = "", node: bool = False) -> Labels:
    """Labels of a target that a ServiceMonitor found; `node` where the monitor adds it."""
    return {
        "job": job or service,
        "instance": f"{pod.address}:{port}",
        "namespace": pod.namespace,
        "service": service,
        "pod": pod.name,
        "container": service,
        "endpoint": "metrics",
        **({"node": pod.node} if node else {}),
    }


def ray_labels(run: Run, pod: Pod, *, port: str, number: int) -> Labels:
    """Labels of a target that our PodMonitors of Ray found."""
    kind = "head" if pod == run.head else "worker"
    return {
        "job": f"monitoring/ray-{kind}s",
        "instance": f"{pod.address}:{number}",
        "namespace": pod.namespace,
        "pod": pod.name,
        "container": f"ray-{kind}",
        "endpoint": port,
        "ray_io_cluster": run.name,
        "team": run.team,
        "training_job": run.name,
    }


def rows(labels: Sequence[str], *values: str) -> Axis:
    """An axis from texts such as `cpu core`, one for each row."""
    return Axis(tuple(labels), [tuple(value.split(" ")) for value in values])
