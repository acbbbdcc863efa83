"""The first cause of an end, by tables of rules; pure functions.

A decision of somebody comes first: done, stopped, a deadline. Else the earliest evidence of the last attempt is the cause,
because what follows is its effect: peers lose their connection, the driver fails, KubeRay deletes the pods. Where two are as
early, the order of `EVIDENCE` decides; evidence without a time comes last. Without any, what is known of the end must suffice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from observability.postmortem.case import Case
from observability.postmortem.evidence import EVIDENCE, WAITING
from observability.postmortem.record import JobRecord
from observability.postmortem.rule import RESUME, Cause, Rule

_STOPPED = re.compile(r"exit code 130\b")
_DEACTIVATED = re.compile(r"deactivated due to (.*)")
_NEVER = datetime.max.replace(tzinfo=UTC)


def first_cause(case: Case) -> Cause:
    """Why it ended, or what it waits for."""
    for rule in DECISIONS:
        for cause in rule(case):
            return cause
    found = [cause for rule in EVIDENCE for cause in rule(case)]
    if found:
        return min(found, key=lambda cause: cause.time or _NEVER)  # the first of equals: in the order of the rules
    return next(cause for rule in FALLBACK for cause in rule(case))


def _done(case: Case) -> Iterator[Cause]:
    if case.state == "done":
        yield Cause(kind="done", sentence=f"{_subject(case)} is done")


def _stopped_by_user(case: Case) -> Iterator[Cause]:
    """A Workload that is not active, and not by Kueue, was stopped by somebody."""
    record = case.record
    if record is None:
        if case.state == "stopped":
            yield Cause(kind="stopped", sentence=f"{_subject(case)} was stopped", remedy=RESUME)
        return
    newest = record.newest_transition
    is_inactive = record.workload is not None and not record.workload.is_active
    if (is_inactive and not _by_kueue(record)) or (newest is not None and newest.driver == "STOPPED"):
        yield Cause(kind="stopped", sentence=f"{_subject(case)} was stopped by its team", remedy=RESUME)


def _deadline(case: Case) -> Iterator[Cause]:
    newest = case.record.newest_transition if case.record else None
    if newest is not None and newest.reason == "DeadlineExceeded":
        yield Cause(
            kind="deadline",
            sentence=f"{_subject(case)} exceeded its deadline, which counts from its admission",
            remedy="resume it with a longer --deadline-hours",
            time=newest.time,
        )


def _never_ready(case: Case) -> Iterator[Cause]:
    """Pods that did not start in time, with what they waited for."""
    record = case.record
    if record is None:
        return
    newest, by_kueue = record.newest_transition, _by_kueue(record)
    if by_kueue or (newest is not None and newest.reason == "PreRunningDeadlineExceeded"):
        waited = next((cause for rule in WAITING for cause in rule(case)), None)
        why = f": {waited.sentence}" if waited else f": {by_kueue}" if by_kueue else ""
        remedy = waited.remedy if waited else "find out why its nodes do not come, or choose another --group"
        yield Cause(
            kind="not ready", sentence=f"the pods of {_subject(case)} did not start in time{why}", remedy=remedy
        )


def _exited_with_130(case: Case) -> Iterator[Cause]:
    if case.record is not None and _STOPPED.search(case.record.message):
        yield Cause(
            kind="stopped", sentence=f"{_subject(case)} saved its state and stopped, as it was asked to", remedy=RESUME
        )


def _still_runs(case: Case) -> Iterator[Cause]:
    if case.state != "runs":
        return
    newest = case.record.newest_transition if case.record else None
    waited = next((cause for rule in WAITING for cause in rule(case)), None)
    queued = _queued(case.record) if case.record else ""
    said = waited.sentence if waited else queued or (f"{newest.deployment} {newest.driver}".strip() if newest else "")
    yield Cause(kind="runs", sentence=f"{_subject(case)} runs{f': {said}' if said else ''}")


def _deleted(case: Case) -> Iterator[Cause]:
    if case.state == "deleted" and case.record is not None:
        newest = case.record.newest_transition
        state = (
            f"while it was {newest.deployment.lower()}" if newest and newest.deployment else "before it was admitted"
        )
        yield Cause(
            kind="deleted",
            sentence=f"{_subject(case)} was deleted {state}; nothing had failed before",
            remedy=f"make train NAME={case.name} with its settings resumes the run",
            time=case.record.ended,
        )


def _killed(case: Case) -> Iterator[Cause]:
    if case.state == "killed":
        yield Cause(
            kind="driver killed",
            sentence=f"the driver of {_subject(case)} ended without a message: it was killed, or its machine was lost",
            remedy=f"dmesg tells of the out-of-memory killer; {RESUME}",
        )


def _last_word(case: Case) -> Iterator[Cause]:
    newest = case.record.newest_transition if case.record else None
    said = ": ".join(part for part in (newest.reason, newest.message) if part) if newest else ""
    yield Cause(kind="unknown", sentence=f"{_subject(case)} failed{f': {said}' if said else ', and nothing says why'}")


DECISIONS: Sequence[Rule] = (_done, _stopped_by_user, _deadline, _never_ready, _still_runs)
FALLBACK: Sequence[Rule] = (_exited_with_130, _deleted, _killed, _last_word)


def _by_kueue(record: JobRecord) -> str:
    """Why Kueue itself deactivated the Workload; empty if it did not."""
    evictions = record.workload.evictions[-1:] if record.workload and not record.workload.is_active else ()
    found = next((found for one in evictions if (found := _DEACTIVATED.search(one.message))), None)
    return found[1] if found else ""


def _queued(record: JobRecord) -> str:
    """What a job that is not admitted waits for, and why it lost its admission."""
    conditions = {one.type: one for one in record.workload.conditions} if record.workload else {}
    admitted, quota = conditions.get("Admitted"), conditions.get("QuotaReserved")
    if record.workload is None or (admitted is not None and admitted.status == "True"):
        return ""
    evicted = f"evicted ({record.workload.evictions[-1].message}); " if record.workload.evictions else ""
    return f"{evicted}queued{f': {quota.message}' if quota and quota.status == 'False' else ''}"


def _subject(case: Case) -> str:
    return f"{'job' if case.is_job else 'run'} {case.name}"
