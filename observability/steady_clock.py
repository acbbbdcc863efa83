"""The times of a log's events, without the settings of the wall clock that happened between them."""

from __future__ import annotations

from dataclasses import replace

from observability.event_log import E, Event

_SET_SECONDS = 1.0
"""A wall clock that has gone further ahead or behind was set; one that a time server corrects may differ by less."""


class SteadyClock:
    """Replaces the wall time of events where the clock was set, event after event.

    A machine's wall clock is believed once, at its first event. From there its time is counted by its uptime, until it starts anew. So
    machines whose clocks differ keep their difference, and events of older logs, which have no uptime, keep their times.
    """

    def __init__(self) -> None:
        self._starts: dict[str, float] = {}

    def steady(self, event: E) -> E:
        """The event, with the time that it would have if the clock had not been set."""
        seconds = self._seconds_set(event)
        return replace(event, time=event.time - seconds) if seconds else event

    def _seconds_set(self, event: Event) -> float:
        """Seconds by which the clock of the event's machine was set since that machine's first event; 0 if it was not, or nobody knows."""
        if event.uptime is None:
            return 0.0
        start = event.time - event.uptime
        seconds = start - self._starts.setdefault(event.boot, start)
        return seconds if abs(seconds) > _SET_SECONDS else 0.0
