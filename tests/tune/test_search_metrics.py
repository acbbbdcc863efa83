"""The metrics of a search, as its driver exports them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.metrics.prometheus import PrometheusRecorder
from tests.distribution import RAY
from tests.engines.ports import free_port
from tests.observability.metrics.exported import families, values
from tests.tune.sample_search import NAME, SampleSearch, history_of
from tests.tune.search_driver import SearchDriver, assert_counted_once, search_of
from training.errors import ExitStatus
from tune.events import SearchNotice, TrialReported
from tune.history import SearchHistory
from tune.metrics import SearchMetrics

FAILING = {"t002": "worker 1 ran out of memory"}


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    server = PrometheusRecorder(host="127.0.0.1", port=0)
    yield server
    server.close()


def status_counts(found: dict[str, float]) -> dict[str, float]:
    statuses = ("running", "done", "stopped", "failed")
    return {status: found[f'rtp_search_trials{{status="{status}"}}'] for status in statuses}


def test_the_metrics_follow_the_events(recorder: PrometheusRecorder) -> None:
    search = SampleSearch(trials=6, epochs=9, failing=FAILING)
    metrics = SearchMetrics(recorder, history_of(search.events[0]))
    started = values(recorder.url)
    assert started["rtp_search_planned_trials"] == 6
    assert status_counts(started) == {"running": 0, "done": 0, "stopped": 0, "failed": 0}
    assert started["rtp_search_last_evaluation_timestamp_seconds"] == search.events[0].time
    assert math.isnan(started['rtp_search_best{metric="validation_accuracy"}'])
    assert math.isnan(started["rtp_search_time_left_seconds"])
    for number, event in enumerate(search.events[1:], start=2):
        metrics.handle(event)
        seen = history_of(*search.events[:number])
        found = status_counts(values(recorder.url))
        ended: list[str] = [trial.status for trial in seen.trials.values() if trial.status]
        assert found == {"running": len(seen.trials) - len(ended), **{one: ended.count(one) for one in list(found)[1:]}}
    last, history = values(recorder.url), search.history
    assert last['rtp_search_best{metric="validation_accuracy"}'] == history.ranked()[0].best(
        "validation_accuracy", "max"
    )
    assert last["rtp_search_worker_seconds"] == history.worker_seconds
    assert last["rtp_search_time_left_seconds"] == 0
    reports = [event.time for event in search.events if isinstance(event, TrialReported)]
    assert last["rtp_search_last_evaluation_timestamp_seconds"] == max(reports)
    assert {sample.labels["search"] for sample in families(recorder.url)["rtp_search_trials"].samples} == {NAME}
    SearchMetrics(recorder, SampleSearch(trials=1, epochs=9, failing={"t001": "killed"}).history)
    assert math.isnan(values(recorder.url)['rtp_search_best{metric="validation_accuracy"}']), "a trial that failed"


@pytest.mark.extended
@pytest.mark.xdist_group(RAY)
def test_a_search_counts_each_trial_once_and_serves_metrics_while_they_train(tmp_path: Path) -> None:
    """The port that is set is the driver's: concurrent trials cannot share it."""
    port = free_port()
    settings = search_of(
        epochs=6,
        shared={"metrics": {"port": port}},
        algorithm="random",
        trials=2,
        concurrency=2,
        objectives={"validation_loss": "min"},
    )
    with SearchDriver(tmp_path, settings) as driver:
        assert driver.wait_for(lambda event: isinstance(event, SearchNotice))
        for _ in range(3):
            assert driver.wait_for(lambda event: isinstance(event, TrialReported))
        found = values(f"http://127.0.0.1:{port}/metrics")
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert f"metrics: http://127.0.0.1:{port}/metrics" in ended.out
    assert found["rtp_search_planned_trials"] == 2
    assert found['rtp_search_trials{status="failed"}'] == 0
    assert found['rtp_search_best{metric="validation_loss"}'] > 0
    assert found["rtp_search_time_left_seconds"] > 0
    assert 0 <= time.time() - found["rtp_search_last_evaluation_timestamp_seconds"] < 600
    assert not [name for name in found if name.startswith("rtp_train_")]
    assert {trial.status for trial in SearchHistory.read(driver.run).trials.values()} == {"done"}
    assert_counted_once(driver.run, trials=2)
