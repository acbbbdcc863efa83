"""Where the jobs of a group go in the time of a reservation or Capacity Block. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from infra.lifecycle.capacity.need import utc
from infra.lifecycle.capacity.windows import Window

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that may run in a window.

    Attributes:
        team: its team.
        name: its name.
        groups: groups that it may use; the one that it has, once it is admitted.
        state: whether it has been admitted.
        nodes: number of its worker pods.
        gpus: GPUs of all its workers.
        since: when its deadline began to count; None while it waits.
        deadline: how long it may run from then on; None: as long as it likes.
    """

    team: str
    name: str
    groups: tuple[str, ...]
    state: Literal["runs", "waits"]
    nodes: int
    gpus: int
    since: datetime | None
    deadline: timedelta | None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A job in a window.

    Attributes:
        job: the job.
        window: the window.
        starts: when it began; of a job that waits, when it begins if every job before it uses its whole deadline.
        ends: the latest end by its deadline, if it begins then; None: it has no deadline.
        nodes_until: until when it has nodes there, at `starts` if never; None: as long as it likes.
        problem: why it may have no nodes at some time before its deadline; empty if it fits.
    """

    job: Job
    window: Window
    starts: datetime
    ends: datetime | None
    nodes_until: datetime | None
    problem: str

    @property
    def fits(self) -> bool:
        """Whether it has nodes until it ends, in any case."""
        return not self.problem


def place(window: Window, jobs: Sequence[Job], *, now: datetime) -> tuple[Fit, ...]:
    """Place the jobs of a window's group in it.

    A job that runs keeps its GPUs until its deadline. Those that wait follow, each at the first moment from which enough GPUs
    are free for all of its time, so that a small job passes a large one where it does not delay it.

    Args:
        window: the window.
        jobs: the jobs; those that wait in the order of the queue.
        now: the time, with its zone.
    """
    ours = [one for one in jobs if window.group and window.group in one.groups]
    placed = [_in_time(one, window, one.since or now) for one in ours if one.state == "runs"]
    for one in ours:
        if one.state == "waits":
            placed.append(_after(placed, one, window, now))
    return tuple(sorted(placed, key=lambda one: (one.starts, one.job.team, one.job.name)))


def _after(placed: Sequence[Fit], job: Job, window: Window, now: datetime) -> Fit:
    """A job that waits, after those that are placed already."""
    first = max(now, window.starts or now)
    if not window.has_capacity:
        return _without_nodes(job, window, first, f"{window.id} is {window.state}")
    if job.gpus > window.gpus:
        return _without_nodes(job, window, first, f"it needs {job.gpus} GPUs, {window.id} has {window.gpus}")
    starts = _first_room(job, window, placed, first, now)
    if starts is None:
        return _without_nodes(job, window, first, "jobs without a deadline may keep the GPUs")
    return _in_time(job, window, starts)


def _without_nodes(job: Job, window: Window, starts: datetime, problem: str) -> Fit:
    return Fit(job=job, window=window, starts=starts, ends=_end(job, starts), nodes_until=starts, problem=problem)


def _in_time(job: Job, window: Window, starts: datetime) -> Fit:
    """A job whose only limit is the time in which the window has nodes."""
    if not window.has_capacity:
        return _without_nodes(job, window, starts, f"{window.id} is {window.state}")
    ends, last = _end(job, starts), window.nodes_until
    late = last is not None and (ends is None or ends > last)
    goes = f"its nodes {'go' if job.state == 'runs' else 'would go'} at {utc(last)}" if last else ""
    return Fit(
        job=job,
        window=window,
        starts=starts,
        ends=ends,
        nodes_until=None if last is None else max(starts, last),
        problem=f"{goes}: it saves, and waits for other nodes" if late else "",
    )


def _end(job: Job, starts: datetime) -> datetime | None:
    return None if job.deadline is None else starts + job.deadline


def _first_room(job: Job, window: Window, placed: Iterable[Fit], first: datetime, now: datetime) -> datetime | None:
    """The first moment from which the job's GPUs are free for all its time; None if there is none."""
    # What still runs after its deadline ends soon.
    busy = [
        (one.starts, _NEVER if one.ends is None else max(now, one.ends), one.job.gpus)
        for one in placed
        if one.nodes_until != one.starts
    ]
    moments = sorted({first, *(ends for _, ends, _ in busy if first < ends < _NEVER)})
    return next((one for one in moments if _is_free(job, window.gpus, busy, one)), None)


def _is_free(job: Job, gpus: int, busy: Sequence[tuple[datetime, datetime, int]], starts: datetime) -> bool:
    ends = _end(job, starts) or _NEVER
    changes = [starts, *(begins for begins, _, _ in busy if starts < begins < ends)]
    return all(job.gpus + _used(busy, moment) <= gpus for moment in changes)


def _used(busy: Iterable[tuple[datetime, datetime, int]], moment: datetime) -> int:
    return sum(gpus for begins, ends, gpus in busy if begins <= moment < ends)
