"""The table of runs that `jobs` prints."""

from __future__ import annotations

from datetime import datetime

from observability.history import state_of
from observability.objective_metrics import LOSS, ObjectiveInfo
from observability.runlog import Evaluated, Event, RunEnded, RunStarted, Step, TrainingStarted, read_all, select
from training.rundir import RunDirectory

_HEADINGS = ("run", "state", "step", "validation", "last change")


def job_table(found: list[RunDirectory]) -> str:
    """One line per run: name, state, steps done of all, newest validation, time of the last event."""
    if not found:
        return "no runs yet; start one: make train"
    rows = [_HEADINGS, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(run: RunDirectory) -> tuple[str, str, str, str, str]:
    is_running = run.is_running()
    events = read_all(run.path)
    steps, plans = select(events, Step), select(events, TrainingStarted)
    evaluations = [event for event in select(events, Evaluated) if event.split == "validation"]
    newest = max(reversed(evaluations), key=lambda event: event.step, default=None)
    metric = ObjectiveInfo.of(plans[-1].objective).headline if plans else LOSS
    return (
        run.name,
        state_of(_end(events), is_running=is_running),
        f"{steps[-1].step if steps else 0}/{plans[-1].total_steps if plans else '?'}",
        f"{metric.title} {metric.text(newest.value(metric.name))}" if newest else "",
        f"{datetime.fromtimestamp(events[-1].time).astimezone():%Y-%m-%d %H:%M:%S}" if events else "",
    )


def _end(events: list[Event]) -> RunEnded | None:
    """The end that the newest driver has recorded."""
    last = next((event for event in reversed(events) if isinstance(event, RunStarted | RunEnded)), None)
    return last if isinstance(last, RunEnded) else None
