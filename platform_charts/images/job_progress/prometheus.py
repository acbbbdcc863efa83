"""Reads the runs and searches of all jobs from Prometheus."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping

from . import searches
from .figures import NEWEST, PLANNED, STEP, Progressing, newest_runs
from .searches import Series

_WINDOW = "10m"
"""Time over which the pace of a run is measured: 40 scrapes of 15 seconds, and several steps of a large model."""

_OF_JOBS = 'training_job!=""'
_LAST = "1m"
"""Time for which the values of a run that has ended count: the agent serves them for 20 s, and this program asks every 30 s."""

_OF_RUNS = f'last_over_time({{__name__=~"{"|".join((STEP, PLANNED, NEWEST))}",{_OF_JOBS}}}[{_LAST}])'
_GAUGES = f'{_OF_RUNS} or {{__name__=~"{"|".join(searches.GAUGES)}",{_OF_JOBS}}}'
# `rate` divides by the whole window, so it is too low for a run that started within it; the regression is not.
_SLOPES = f"deriv({STEP}{{{_OF_JOBS}}}[{_WINDOW}])"

_SECONDS = 30.0
_PATIENCE = 300.0
"""Time without an answer after which remaining times are no longer shown; a restart of Prometheus takes less."""


class Prometheus:
    """A Prometheus server.

    Args:
        url: its address, without a path.
        patience: seconds without an answer after which nothing counts as known.
        clock: seconds of a monotonic clock.

    Attributes:
        problem: why it did not answer last time; empty if it did.
    """

    def __init__(self, url: str, *, patience: float = _PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._patience = patience
        self._clock = clock
        self._answered = clock()
        self.problem = ""

    def runs(self) -> Mapping[tuple[str, str], Progressing] | None:
        """The run or search of each job, by namespace and name; None while it has not answered for a short time."""
        try:
            found = newest_runs(self._query(_GAUGES), slopes=self._query(_SLOPES))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.problem = f"Prometheus does not answer: {type(error).__name__}: {error}"
            return None if self._clock() - self._answered < self._patience else {}
        self.problem, self._answered = "", self._clock()
        return found

    def _query(self, expression: str) -> list[Series]:
        """The series of an instant query (Prometheus, "HTTP API")."""
        address = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - the URL is our own setting
            result = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]
