"""What is known of a job or a run that is looked into: plain data, from which the cause, the page and the text are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from observability.history import RunHistory
from observability.postmortem.record import JobRecord

State = Literal["runs", "done", "failed", "stopped", "deleted", "killed"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the trainer says of a failure.

    Attributes:
        time: when; None if it is not known.
        text: the first line of its message, which names the rank.
        remedy: what it advises; may be empty.
    """

    time: datetime | None
    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """The last lines of a log.

    Attributes:
        title: whose log it is.
        lines: oldest first.
        note: why there are none, or no more; may be empty.
    """

    title: str
    lines: Sequence[str]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RayFact:
    """A line of Ray's own state after a failure.

    Attributes:
        attempt: which worker group failed, from 0.
        what: node, actor or placement group, with its name.
        state: e.g. DEAD.
        why: Ray's reason; may be empty.
    """

    attempt: int
    what: str
    state: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An earlier submission of the same name: when it began, and what became of it."""

    created: datetime | None
    summary: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job or a run.

    Attributes:
        name: of the job or run.
        is_job: whether it is a job of a cluster.
        state: how it ended.
        reports: failures that the trainer reported, oldest first; of a job, in the end of its driver's log.
        record: the job's record; None for a run.
        history: the run's event log; None for a job, whose run is on the team's storage.
        ray: Ray's own state after each failure.
        logs: the ends of logs.
        earlier: earlier submissions of the job.
        links: labels and addresses of what else there is.
        now: the current time.
    """

    name: str
    is_job: bool
    state: State
    reports: Sequence[Report] = ()
    record: JobRecord | None = None
    history: RunHistory | None = None
    ray: Sequence[RayFact] = ()
    logs: Sequence[LogTail] = ()
    earlier: Sequence[Earlier] = ()
    links: Sequence[tuple[str, str]] = ()
    now: datetime = field(default_factory=lambda: datetime.now().astimezone())
