"""The seconds of a trial's workers, from its run's log."""

from __future__ import annotations

import json
from pathlib import Path

from observability.line_file import read_lines
from observability.runlog import FILE_NAME, Event, RunStarted
from training.rundir import RunDirectory

_STARTED = b'{"kind":"' + RunStarted.kind.encode() + b'"'


class WorkerClock:
    """Counts the seconds of a trial's workers: of each of its drivers from its start to its newest event."""

    def __init__(self, run: RunDirectory, workers: int) -> None:
        self._workers = workers
        self._earlier = _seconds_of_earlier_drivers(run.path)
        self._started = self._newest = 0.0
        self.is_running = False
        """Whether this driver has begun."""

    def count(self, event: Event) -> None:
        """Count up to an event of this driver."""
        if isinstance(event, RunStarted):
            self._earlier, self._started = self._earlier + self._newest - self._started, event.time
            self.is_running = True
        if self.is_running:
            self._newest = event.time

    @property
    def seconds(self) -> float:
        """Seconds of all workers so far."""
        return (self._earlier + self._newest - self._started) * self._workers


def worker_seconds(run: RunDirectory, *, workers: int) -> float:
    """Seconds of all workers of a run so far; 0 before its first start."""
    return _seconds_of_earlier_drivers(run.path) * workers


def _seconds_of_earlier_drivers(run_directory: Path) -> float:
    """Seconds that earlier drivers have run; decodes only their first and last lines."""
    seconds, started, last = 0.0, 0.0, b""
    for line, _ in read_lines(run_directory / FILE_NAME):
        if line.startswith(_STARTED):
            seconds += _time(last) - started if last else 0.0
            started = _time(line)
        last = line
    return seconds + (_time(last) - started if last else 0.0)


def _time(line: bytes) -> float:
    return float(json.loads(line)["time"])
