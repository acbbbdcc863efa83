"""Reports of rank 0 during the run: events, to the run's log and to the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from observability import runlog
from observability.metrics.exporters import open_recorder
from observability.metrics.recorder import MetricsAddressError
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import Event, RunLogWriter, Step, TrainingStarted, read_all
from training.config.schema import MetricsSettings
from training.errors import PreflightError
from training.tracking.state import TrackingState

_MEASURE_SECONDS = 5.0


class Reporter:
    """Passes events on; the `Reporter()` of every rank but 0 drops them."""

    def __init__(
        self,
        log: RunLogWriter | None = None,
        metrics: TrainingMetrics | None = None,
        *,
        run_directory: Path | None = None,
        metrics_url: str = "",
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._metrics_url = metrics_url
        self._run_directory = run_directory
        self._measured = 0.0

    def emit(self, *events: Event) -> None:
        """Pass events on, oldest first."""
        events = tuple(
            replace(event, metrics_url=self._metrics_url) if isinstance(event, TrainingStarted) else event
            for event in events
        )
        if self._log is not None:
            self._log.write(*events)
        if self._metrics is not None:
            self._metrics.handle(*events)
            newest = events[-1]
            if isinstance(newest, Step) and newest.time - self._measured >= _MEASURE_SECONDS:
                self._measured = newest.time
                self._measure(self._metrics)

    def _measure(self, metrics: TrainingMetrics) -> None:
        """Record what is in no event: how far MLflow is behind the log."""
        assert self._run_directory is not None
        delivered = TrackingState.load(self._run_directory)
        if delivered is not None:
            size = (self._run_directory / runlog.FILE_NAME).stat().st_size
            metrics.spool_backlog(max(0, size - delivered.offset))


@contextmanager
def reporting(run_directory: Path, settings: MetricsSettings) -> Iterator[Reporter]:
    """The reporter of rank 0, for the duration of the block.

    Raises:
        PreflightError: metrics cannot be served on the configured address.
    """
    history = read_all(run_directory)
    try:
        recorder = open_recorder(settings.exporter, host=settings.host, port=settings.port)
    except MetricsAddressError as error:
        raise PreflightError(str(error), remedy="set metrics.port=0 for a free port, or stop what uses it") from error
    metrics = TrainingMetrics(recorder, run=run_directory.name, history=history)
    try:
        with RunLogWriter(run_directory) as log:
            yield Reporter(log, metrics, run_directory=run_directory, metrics_url=recorder.url)
    finally:
        recorder.close()
