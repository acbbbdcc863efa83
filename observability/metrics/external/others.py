"""Metrics of Prometheus itself, and of Fluent Bit."""

from __future__ import annotations

from observability.metrics.external.model import RAY_POD_MONITOR_LABELS, SERVICE_MONITOR_LABELS, ScrapedMetric, Source

OTHER_METRICS = (
    ScrapedMetric(
        name="up",
        kind="gauge",
        help="1 if the newest scrape of a target succeeded, 0 if it failed.",
        labels=(),
        source=Source(
            component="Prometheus",
            project="prometheus/prometheus",
            version="3.14.0",
            file="scrape/scrape.go",
            target_labels=tuple(dict.fromkeys((*SERVICE_MONITOR_LABELS, *RAY_POD_MONITOR_LABELS))),
        ),
    ),
    ScrapedMetric(
        name="fluentbit_output_retries_total",
        kind="counter",
        help="Retried deliveries.",
        labels=("name",),
        source=Source(component="Fluent Bit", project="fluent/fluent-bit", version="5.1.1", file="src/flb_output.c"),
    ),
)
