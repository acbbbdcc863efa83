"""Follows a job to its end: looks at its state every few seconds, shows what is new, and outlives a lost connection."""

from __future__ import annotations

import time
from collections.abc import Iterator

from training.cluster.driver_log import DriverLog
from training.cluster.errors import ApiError, LostConnectionError
from training.cluster.state import JobState, Observation, advance
from training.cluster.view import JobView
from training.cluster.watch import JobWatch

_LOOK_SECONDS = 2.0
_TICK_SECONDS = 0.1
_LONGEST_WAIT = 30.0
_LAST_LINES_SECONDS = 10.0


def follow(watch: JobWatch, log: DriverLog | None, view: JobView) -> JobState:
    """Show the job until nothing more happens to it by itself.

    Only reads: whatever becomes of this process or its connection, the job goes on.

    Args:
        watch: looks at the job.
        log: the driver's log, started; None shows the states alone.
        view: where it is shown.

    Returns:
        the last state, whose status mirrors the job's.

    Raises:
        ApiError: the API server does not let the job be looked at any more.
    """
    state: JobState | None = None
    for seen in _observations(watch, log, view):
        state = advance(state, seen)
        if state.is_over:
            break
        view.state(state)
    assert state is not None, "observations end with the loop only"
    if log is not None:
        for line in log.finish(seconds=_LAST_LINES_SECONDS):
            view.log(line)
    view.state(state)
    return state


def _observations(watch: JobWatch, log: DriverLog | None, view: JobView) -> Iterator[Observation]:
    """Look again and again, showing the log's lines between two looks."""
    wait, lost_since = _LOOK_SECONDS, None
    while True:
        try:
            seen = watch.observe()
        except (LostConnectionError, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_passing:
                raise
            if lost_since is None:
                lost_since = time.monotonic()
                view.say(f"connection lost, the job goes on; trying again: {error.args[0]}", tone="warning")
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if lost_since is not None:
                view.say(f"connected again after {time.monotonic() - lost_since:.0f} s")
            wait, lost_since = _LOOK_SECONDS, None
            yield seen
        _show_log(log, view, seconds=wait)


def _show_log(log: DriverLog | None, view: JobView, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for line in () if log is None else log.take():
            view.log(line)
        view.tick()
        time.sleep(_TICK_SECONDS)
