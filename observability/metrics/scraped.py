"""Every metric that a rule or a dashboard may use, as Prometheus stores it on a cluster: ours and those of other programs."""

from __future__ import annotations

from collections.abc import Mapping

from observability.metrics.external.gpu import GPU_METRICS
from observability.metrics.external.kubelet import KUBELET_METRICS
from observability.metrics.external.kubernetes import KUBERNETES_METRICS
from observability.metrics.external.model import RAY_POD_MONITOR_LABELS, ScrapedMetric, Source
from observability.metrics.external.operators import OPERATOR_METRICS
from observability.metrics.external.others import OTHER_METRICS
from observability.metrics.external.ray import RAY_METRICS
from observability.metrics.inventory import INVENTORY, MetricSpec

_PREFIX = "ray_"
"""Ray's metrics agent prefixes every name (see `observability.metrics.ray`)."""

_OURS = Source(
    component="trainer",
    project="ray-train-platform",
    version="",
    file="observability/metrics/inventory.py",
    target_labels=RAY_POD_MONITOR_LABELS,
)


def _exported(spec: MetricSpec) -> ScrapedMetric:
    return ScrapedMetric(
        name=f"{_PREFIX}{spec.name}",
        kind=spec.kind,
        unit=spec.unit,
        help=spec.help,
        labels=spec.labels,
        source=_OURS,
    )


SCRAPED: tuple[ScrapedMetric, ...] = (
    *map(_exported, INVENTORY),
    *RAY_METRICS,
    *OPERATOR_METRICS,
    *GPU_METRICS,
    *KUBERNETES_METRICS,
    *KUBELET_METRICS,
    *OTHER_METRICS,
)


def series_by_name() -> Mapping[str, ScrapedMetric]:
    """The metric of each name that a query can select; a histogram has a name for buckets, sum and count."""
    return {name: metric for metric in SCRAPED for name in metric.series()}
