"""How far a search is, as metrics of its driver; `kubectl get rayjobs` shows them for a search on a cluster."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from observability.event_log import Event
from observability.metrics.exporters import open_recorder
from observability.metrics.recorder import MetricsAddressError, Recorder
from training.config.schema import MetricsSettings
from training.errors import PreflightError
from tune.estimate import time_left
from tune.events import SearchNotice
from tune.history import SearchHistory
from tune.record import SearchRecord

RUNNING = "running"
STATUSES = (RUNNING, "done", "stopped", "failed")
"""Values of the label `status`: every trial has one of them."""


class SearchMetrics:
    """Records a search as metrics, from its events. Safe to use from several threads.

    Args:
        recorder: receives the values.
        history: the search so far, with its newest start; extended by `handle`.
    """

    def __init__(self, recorder: Recorder, history: SearchHistory) -> None:
        self._recorder = recorder
        self._history = history
        self._lock = threading.Lock()
        self._record(now=history.started[-1].time)

    def handle(self, event: Event) -> None:
        """Record what an event has changed."""
        with self._lock:
            self._history.extend([event])
            self._record(now=event.time)

    def _record(self, *, now: float) -> None:
        history, search = self._history, self._history.name
        set_gauge = self._recorder.set
        set_gauge("rtp_search_planned_trials", history.planned, search=search)
        found = [trial.status or RUNNING for trial in history.trials.values()]
        for status in STATUSES:
            set_gauge("rtp_search_trials", found.count(status), search=search, status=status)
        [metric, mode], *_ = history.objectives.items()
        best = next((trial.best(metric, mode) for trial in history.ranked()), math.nan)
        set_gauge("rtp_search_best", best, search=search, metric=metric)
        set_gauge("rtp_search_worker_seconds", history.worker_seconds, search=search)
        left = time_left(history, now=now)
        set_gauge("rtp_search_time_left_seconds", math.nan if left is None else left.seconds, search=search)
        newest = max((trial.reports[-1].time for trial in history.trials.values() if trial.reports), default=0.0)
        set_gauge("rtp_search_last_evaluation_timestamp_seconds", max(newest, history.started[-1].time), search=search)


@contextmanager
def publishing(record: SearchRecord, settings: MetricsSettings) -> Iterator[None]:
    """Export what is recorded, for the duration of the block; with `metrics.exporter=ray` this process is connected to Ray.

    Raises:
        PreflightError: metrics cannot be served on the configured address.
    """
    try:
        recorder = open_recorder(settings.exporter, host=settings.host, port=settings.port)
    except MetricsAddressError as error:
        raise PreflightError(str(error), remedy="set metrics.port=0 for a free port, or stop what uses it") from error
    try:
        with record.shown_to(SearchMetrics(recorder, record.history.copy()).handle):
            if recorder.url:
                record.add(SearchNotice(level="info", message=f"metrics: {recorder.url}"))
            yield
    finally:
        recorder.close()
