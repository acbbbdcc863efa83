"""Records what happens in a search: in its log, in the state that decisions are made from, and on the screen."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from observability.event_log import Event
from tune.events import SearchLogWriter, TrialReported
from tune.history import SearchHistory


class SearchRecord:
    """The only writer of a search's log.

    What a scheduler decides about a trial because of an evaluation is recorded after that evaluation, although Ray Tune asks the
    scheduler first.
    """

    def __init__(self, log: SearchLogWriter, history: SearchHistory, *, show: Callable[[Event], None]) -> None:
        """Args: `history` is what the log has so far; `show` is called with every event."""
        self.history = history
        self._log = log
        self._shows = [show]
        self._awaiting: dict[str, list[Event]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, *events: Event) -> None:
        """Record events."""
        with self._lock:
            self._log.write(*events)
            self.history.extend(events)
        for event in events:
            for show in self._shows:
                show(event)

    @contextmanager
    def shown_to(self, show: Callable[[Event], None]) -> Iterator[None]:
        """Call something else too with every event, for the duration of the block."""
        self._shows.append(show)
        try:
            yield
        finally:
            self._shows.remove(show)

    def report(self, event: TrialReported) -> None:
        """Record an evaluation unless it is recorded already, and what was decided because of it."""
        is_new = event.epoch > self.history.trials[event.trial].epoch
        self.add(*([event] if is_new else []), *self._awaiting.pop(event.trial, []))

    def after_report(self, trial: str, event: Event, *, epoch: float) -> None:
        """Record an event once the trial's evaluation after an epoch is recorded."""
        if self.history.trials[trial].epoch >= epoch:
            self.add(event)
        else:
            self._awaiting[trial].append(event)
