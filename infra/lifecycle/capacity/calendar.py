"""The reserved capacity of an environment over time, with the jobs that run or wait in it. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.lifecycle.capacity.placing import Fit, Job, place
from infra.lifecycle.capacity.windows import Window


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time between now and the last end in which no reserved nodes of a type are there."""

    instance_type: str
    starts: datetime
    ends: datetime


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Windows, jobs and gaps.

    Attributes:
        now: the time.
        windows: the windows, by start.
        fits: the jobs in them, by window and start.
        gaps: times without reserved nodes.
        jobs_unknown: why the jobs are not known; empty if they are.
    """

    now: datetime
    windows: tuple[Window, ...]
    fits: tuple[Fit, ...]
    gaps: tuple[Gap, ...]
    jobs_unknown: str = ""

    def jobs_in(self, window: Window) -> tuple[Fit, ...]:
        """The jobs in a window."""
        return tuple(one for one in self.fits if one.window == window)


def calendar_of(windows: Sequence[Window], jobs: Sequence[Job], *, now: datetime, jobs_unknown: str = "") -> Calendar:
    """Place the jobs in the windows of their groups, and find the gaps.

    Args:
        windows: the windows.
        jobs: the jobs of the cluster that have not ended, those that wait in the order of the queue.
        now: the time, with its zone.
        jobs_unknown: why the jobs are not known.
    """
    return Calendar(
        now=now,
        windows=tuple(windows),
        fits=tuple(fit for window in windows for fit in place(window, jobs, now=now)),
        gaps=tuple(_gaps(windows, now)),
        jobs_unknown=jobs_unknown,
    )


def _gaps(windows: Sequence[Window], now: datetime) -> Iterable[Gap]:
    """The gaps of each instance type until its last reserved nodes go; none after a window without an end."""
    for name in dict.fromkeys(one.instance_type for one in windows):
        ours = [one for one in windows if one.instance_type == name and one.has_capacity]
        covered = now
        for one in sorted(ours, key=lambda one: one.starts or now):
            starts, last = one.starts or now, one.nodes_until
            if starts > covered:
                yield Gap(instance_type=name, starts=covered, ends=starts)
            if last is None:
                break
            covered = max(covered, last)
