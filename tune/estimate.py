"""How long a search still takes, as far as it can be told.

Nobody knows how many trials a scheduler will stop, or whether a target will be reached; with either of them the estimate is an upper
limit. It assumes that the epochs to come take as long as those of this driver so far.
"""

from __future__ import annotations

from typing import NamedTuple

from observability.quantities import clock
from tune.history import SearchHistory
from tune.settings import POPULATION

_TRAINS_ALL = POPULATION | {"none"}
_EARLY_ENDS = ("target", "plateau_trials", "gpu_hours", "dollars")
_MIN_EPOCHS = 3


class TimeLeft(NamedTuple):
    """How long a search still takes.

    Attributes:
        seconds: the estimate.
        is_limit: it may end earlier.
    """

    seconds: float
    is_limit: bool

    def __str__(self) -> str:
        """`about 12:30 left`, or `at most 12:30 left`."""
        return f"{'at most' if self.is_limit else 'about'} {clock(self.seconds)} left"


def time_left(history: SearchHistory, *, now: float) -> TimeLeft | None:
    """The time left; None while too little has been trained.

    Args:
        history: a running search.
        now: Unix time.
    """
    if not history.started:
        return None
    start = history.started[-1]
    reports = (report.time for trial in history.trials.values() for report in trial.reports)
    trained = [time for time in reports if time >= start.time]
    epochs = history.epochs
    if len(trained) < _MIN_EPOCHS or not epochs:
        return None
    pace = (now - min(trained)) / (len(trained) - 1)  # without the start of Ray and of the first workers
    running = [trial for trial in history.trials.values() if trial.ended is None]
    open_epochs = [max(0, history.epochs_of(trial) - trial.epoch) for trial in running]
    to_come = max(0, history.planned - len(history.trials)) * epochs
    left = (sum(open_epochs) + to_come) * pace
    scheduler = start.settings.get("scheduler", {}).get("name", "none")
    stop = start.settings.get("stop", {})
    is_certain = scheduler in _TRAINS_ALL and not any(stop.get(key) is not None for key in _EARLY_ENDS)
    return TimeLeft(left, is_limit=not is_certain)
