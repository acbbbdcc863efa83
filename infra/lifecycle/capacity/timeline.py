"""The calendar for the terminal: a table of the windows, and a time line of bars."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from rich.table import Table

from infra.lifecycle.capacity.calendar import Calendar
from infra.lifecycle.capacity.need import utc
from infra.lifecycle.capacity.offers import NAMES
from infra.lifecycle.capacity.placing import Fit
from infra.lifecycle.capacity.windows import Window

_WIDTH = 64
_LABEL = 30
_LEAST = timedelta(days=1)
_HORIZON = timedelta(days=14)
"""How far from now a job is drawn."""

WINDOW, RUNS, WAITS, LATE, NOW = "█", "■", "-", "!", "|"
"""Marks: reserved nodes; a job that runs; a job that waits, from the start that is sure; a job without nodes; the present."""

LEGEND = f"{WINDOW} reserved nodes, {RUNS} job that runs, {WAITS} job that waits, {LATE} job without nodes, {NOW} now"


def span_of(calendar: Calendar) -> tuple[datetime, datetime]:
    """First and last moment to draw: from now or a day before, to the last end of a window, and a little beyond it."""
    starts = [one.starts for one in calendar.windows if one.starts] + [one.starts for one in calendar.fits]
    ends = [one.ends for one in calendar.windows if one.ends]
    horizon = calendar.now + _HORIZON
    ends += [min(one.ends or horizon, horizon) for one in calendar.fits]
    first = max(min([*starts, calendar.now]), calendar.now - _LEAST)
    last = max([*ends, *(one for one in starts if one > calendar.now), calendar.now + _LEAST])
    return first, last + (last - first) / 20


def window_table(calendar: Calendar) -> Table:
    """The windows, by start."""
    table = Table(title="Reserved capacity", title_justify="left")
    for heading in ("group", "what", "nodes", "where", "state", "from, UTC", "nodes until", "id"):
        table.add_column(heading, justify="right" if heading == "nodes" else "left", no_wrap=True)
    for one in calendar.windows:
        until = "until cancelled" if one.ends is None else _minute(one.nodes_until or one.ends)
        table.add_row(
            one.group or "none",
            f"{NAMES[one.kind]}, {one.instance_type}",
            str(one.nodes),
            one.zone,
            one.state,
            _minute(one.starts) if one.starts else "",
            until if one.has_capacity else "",
            one.id,
        )
    return table


def time_line(calendar: Calendar) -> Iterator[str]:
    """A line for each window and each job in it, below a scale of days."""
    first, last = span_of(calendar)
    scale = _Scale(first, last)
    yield f"{'':{_LABEL}} {scale.days()}"
    for window in calendar.windows:
        yield f"{_short(window.group or window.instance_type):{_LABEL}} {_window_bar(window, scale, calendar.now)}"
        for fit in calendar.jobs_in(window):
            yield f"{_short(f'  {fit.job.team}/{fit.job.name}'):{_LABEL}} {_job_bar(fit, scale, calendar.now)}"
    yield f"{'':{_LABEL}} {LEGEND}"


def findings(calendar: Calendar) -> Iterator[str]:
    """In words: what is wrong, which jobs do not fit, and where there is nothing."""
    for window in calendar.windows:
        yield from (f"problem: {one}" for one in window.problems)
        if not window.group:
            yield f"{window.id} ({window.nodes} x {window.instance_type}) is used by no group of the environment"
        if not window.has_capacity and window.state != "not found":
            yield f"{window.id} is {window.state}: it may never have nodes"
    yield from (_too_long(one) for one in calendar.fits if not one.fits)
    for gap in calendar.gaps:
        yield f"gap: no reserved {gap.instance_type} from {utc(gap.starts)} to {utc(gap.ends)}"
    if calendar.jobs_unknown:
        yield f"jobs: not known: {calendar.jobs_unknown}"
    elif not calendar.fits:
        yield "jobs: none runs or waits in these groups"


def _too_long(fit: Fit) -> str:
    lasts = "has no deadline" if fit.ends is None else f"may run until {utc(fit.ends)}"
    return f"does not fit: job {fit.job.team}/{fit.job.name} {fit.job.state} and {lasts}; {fit.problem}"


class _Scale:
    """Columns of the time line."""

    def __init__(self, first: datetime, last: datetime) -> None:
        self._first, self._step = first, (last - first) / _WIDTH

    def column(self, moment: datetime) -> int:
        """The column of a moment, within the line."""
        return max(0, min(_WIDTH, round((moment - self._first) / self._step)))

    def days(self) -> str:
        """The days, each where it begins, as far as they do not touch."""
        line, day = "", self._first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        while (day := day + timedelta(days=1)) < self._first + self._step * _WIDTH:
            at = self.column(day)
            name = f"{day:%b %d}"
            if (not line or at > len(line)) and at + len(name) <= _WIDTH:
                line = f"{line:{at}}{name}"
        return line


def _window_bar(window: Window, scale: _Scale, now: datetime) -> str:
    if not window.has_capacity:
        return f"{window.state}"
    left = scale.column(window.starts or now)
    right = _WIDTH if window.nodes_until is None else scale.column(window.nodes_until)
    return _with_now([" "] * left + [WINDOW] * max(1, right - left), scale, now)


def _job_bar(fit: Fit, scale: _Scale, now: datetime) -> str:
    left, right = scale.column(fit.starts), _WIDTH if fit.ends is None else scale.column(fit.ends)
    limit = (
        right if fit.nodes_until is None else left if fit.nodes_until == fit.starts else scale.column(fit.nodes_until)
    )
    mark = RUNS if fit.job.state == "runs" else WAITS
    cells = [mark if column < limit else LATE for column in range(left, max(right, left + 1))]
    if not fit.fits and LATE not in cells:
        cells[-1] = LATE  # shorter than a column
    elif fit.fits:
        cells = [mark] * len(cells)
    return _with_now([" "] * left + cells, scale, now)


def _with_now(cells: list[str], scale: _Scale, now: datetime) -> str:
    """The cells with the present marked where nothing else is."""
    at = min(scale.column(now), _WIDTH - 1)
    cells += [" "] * (at + 1 - len(cells))
    if cells[at] == " ":
        cells[at] = NOW
    return "".join(cells).rstrip()


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def _minute(moment: datetime) -> str:
    return utc(moment).removesuffix(" UTC")
