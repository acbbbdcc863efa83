"""Every query returns data from a real Prometheus: ours from a run that it scrapes, with our rules; all from a recording."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from observability.alerts.__main__ import FILE as RULES
from observability.dashboards.catalog import DASHBOARDS
from observability.dashboards.model import Query
from observability.dashboards.preview.picture import View, results_of
from observability.dashboards.preview.source import MetricsSource
from observability.dashboards.templates import substituted
from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.scraped import series_by_name
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import Event, RunStarted
from tests.engines import prometheus
from tests.observability.metrics.exported import FLOPS, RANKS, RUN, UPLOAD_FAILED, UPLOADED
from tests.observability.sample_run import restarted_run
from tests.tune.sample_search import SampleSearch
from tune.metrics import SearchMetrics

pytestmark = pytest.mark.monitoring

_TARGET = {
    "namespace": "research",
    "training_job": "first",
    "pod": "first-head",
    "team": "research",
    "ray_io_cluster": "first",
    "container": "ray-head",
    "endpoint": "metrics",
}
"""Labels that the PodMonitor adds."""

_SECONDS = 60.0
_NAMES = re.compile(r"\b(?:ray_|DCGM_|kube|kueue_|cluster_auto|ALERTS|fluentbit_|prometheus_|up\b)\w*")


def of_ours(query: Query) -> bool:
    """Whether a query selects metrics of the trainer and of searches only, or what rules record of them."""
    metrics = series_by_name()
    names = set(_NAMES.findall(re.sub(r"\w+:(\w+):\w+", r"\1", query.expression)))
    return bool(names) and all(name not in metrics or metrics[name].source.component == "trainer" for name in names)


OURS = [
    (dashboard, query)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
    if of_ours(query)
]


def test_every_query_and_every_variable_of_a_dashboard_has_data(recorded: View) -> None:
    for dashboard in DASHBOARDS:
        empty = [
            f"'{panel.title}': {query.expression}"
            for panel in dashboard.panels
            for query, series in zip(panel.queries, results_of(panel, dashboard, recorded), strict=True)
            if not series
        ]
        assert empty == []
        for variable in dashboard.variables:
            selector = recorded.expression(variable.selector, dashboard)
            found = {one.labels.get(variable.label) for one in recorded.source.at(selector, recorded.end)}
            assert found - {None}, variable


def test_a_run_is_chosen_by_its_variables(recorded: View) -> None:
    (dashboard,) = [one for one in DASHBOARDS if one.uid == "rtp-run"]
    (panel,) = [one for one in dashboard.panels if one.title == "Progress"]
    chosen = View(source=recorded.source, end=recorded.end, seconds=600, values={"team": "vision"})
    (series,) = results_of(panel, dashboard, chosen)
    assert [one.labels["run"] for one in series] == ["resnet50-imagenet"]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsSource]:
    """A Prometheus that has scraped a run, a search and their end, with our rules."""
    recorder = PrometheusRecorder(host="127.0.0.1", port=0)
    folder = tmp_path_factory.mktemp("scraped")
    events = [replace(one, dollars_per_hour=7.2) if isinstance(one, RunStarted) else one for one in restarted_run()]
    metrics = TrainingMetrics(recorder, run=RUN)
    _record(metrics, [FLOPS, UPLOADED, UPLOAD_FAILED, *events[: len(events) // 2]])
    SearchMetrics(recorder, SampleSearch(trials=4, epochs=3).history)
    with prometheus.scraping(recorder.url, folder=folder, labels=_TARGET, prefix="ray_", rules=RULES) as server:
        source = MetricsSource(server.url)
        _await(source, "count_over_time(run:ray_rtp_train_samples_per_second:avg10m[10s]) > 2")
        _record(metrics, events[len(events) // 2 :])
        _record(metrics, [RANKS, RANKS, UPLOADED, UPLOAD_FAILED])
        metrics.spool_backlog(4096)
        _await(source, "count_over_time(ray_rtp_train_spool_backlog_bytes[10s]) > 2")
        yield source
    recorder.close()


def _record(metrics: TrainingMetrics, events: Sequence[Event]) -> None:
    for event in events:
        metrics.handle(event)


def _await(source: MetricsSource, expression: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not source.at(expression, time.time()):
        assert time.monotonic() < deadline, f"Prometheus has no data for {expression}"
        time.sleep(0.2)


def test_every_query_over_our_metrics_returns_data_of_a_real_run(scraped: MetricsSource) -> None:
    assert len(OURS) > 50
    for dashboard, query in OURS:
        values = {variable.name: ".*" for variable in dashboard.variables}
        _await(scraped, substituted(query.expression, {**values, "__rate_interval": "1m", "__range": "1m"}))
