"""Policy: when a session ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from observability.quantities import duration
from training.errors import SettingsError

_TIME = re.compile(r"(?P<count>\d+(\.\d+)?)(?P<unit>[mh])")


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What somebody does on a cluster.

    Attributes:
        running: what runs now, in words; empty if nothing does.
        age: seconds since a terminal or a notebook was last used; None if there is neither.
    """

    running: str = ""
    age: float | None = None


class IdleClock:
    """Measures how long a session has been idle, and how long it has lasted."""

    def __init__(self, *, idle_seconds: float, longest_seconds: float, started: float) -> None:
        """Start the clock.

        Args:
            idle_seconds: time without use after which the session ends.
            longest_seconds: time after which it ends in any case.
            started: the current time, in seconds of any monotonic clock.
        """
        self._last_use = started
        self._started = started
        self._idle_seconds = idle_seconds
        self._longest_seconds = longest_seconds

    def observe(self, activity: Activity, *, now: float) -> str | None:
        """Why the session ends now; None while it goes on."""
        if activity.running:
            self._last_use = now
        elif activity.age is not None:
            self._last_use = max(self._last_use, now - activity.age)
        if now - self._started >= self._longest_seconds:
            return f"its time limit of {duration(self._longest_seconds)} is over"
        if now - self._last_use >= self._idle_seconds:
            return f"nobody used it for {duration(self._idle_seconds)}"
        return None


def minutes_of(text: str) -> float:
    """Minutes of a time as people type it, e.g. `30m` or `1.5h`.

    Raises:
        SettingsError: it is no such time, or shorter than a minute.
    """
    found = _TIME.fullmatch(text)
    minutes = 0.0 if found is None else float(found["count"]) * (60 if found["unit"] == "h" else 1)
    if minutes < 1:
        raise SettingsError(f"idle time {text!r} must be at least a minute", remedy="for example 30m or 2h")
    return minutes
