"""Metrics of Prometheus itself, and of Fluent Bit."""

from __future__ import annotations

from observability.metrics.external.model import RAY_POD_MONITOR_LABELS, SERVICE_MONITOR_LABELS, ScrapedMetric, Source

_ANY_TARGET = tuple(dict.fromkeys((*SERVICE_MONITOR_LABELS, *RAY_POD_MONITOR_LABELS)))


def _source(file: str, *, target_labels: tuple[str, ...] = SERVICE_MONITOR_LABELS) -> Source:
    return Source(
        component="Prometheus",
        project="prometheus/prometheus",
        version="3.14.0",
        file=file,
        target_labels=target_labels,
    )


OTHER_METRICS = (
    ScrapedMetric(
        name="up",
        kind="gauge",
        help="1 if the newest scrape of a target succeeded, 0 if it failed.",
        labels=(),
        source=_source("scrape/scrape.go", target_labels=_ANY_TARGET),
    ),
    ScrapedMetric(
        name="ALERTS",
        kind="gauge",
        help="1 for each alert that is pending or firing, with the labels of its expression.",
        labels=("alertname", "alertstate", "severity", "namespace", "training_job", "run", "node"),
        source=_source("rules/alerting.go", target_labels=()),
    ),
    ScrapedMetric(
        name="prometheus_tsdb_head_series",
        kind="gauge",
        help="Series in memory.",
        labels=(),
        source=_source("tsdb/head.go"),
    ),
    ScrapedMetric(
        name="prometheus_tsdb_head_samples_appended_total",
        kind="counter",
        help="Samples that were stored.",
        labels=(),
        source=_source("tsdb/head.go"),
    ),
    ScrapedMetric(
        name="prometheus_rule_evaluation_failures_total",
        kind="counter",
        help="Evaluations of rules that failed.",
        labels=(),
        source=_source("rules/group.go"),
    ),
    ScrapedMetric(
        name="fluentbit_output_retries_total",
        kind="counter",
        help="Retried deliveries.",
        labels=("name",),
        source=Source(component="Fluent Bit", project="fluent/fluent-bit", version="5.1.1", file="src/flb_output.c"),
    ),
)
