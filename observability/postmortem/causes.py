"""The first cause of an end, by tables of rules; pure functions.

A decision of somebody comes first: done, stopped, a deadline. Else the earliest evidence of the last attempt is the cause,
because what follows is its effect: peers lose their connection, the driver fails, KubeRay deletes the pods. Where two are as
early, the order of `EVIDENCE` decides; evidence without a time comes last. Without any, what is known of the end must suffice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from observability.postmortem.case import Case
from observability.postmortem.record import JobRecord, PodRecord

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why something ended, or waits.

    Attributes:
        kind: the rule that found it, for tests and statistics.
        sentence: what happened, with the object that it happened to.
        remedy: what to do about it; may be empty.
        time: when; None if it is not known.
    """

    kind: str
    sentence: str
    remedy: str = ""
    time: datetime | None = None


Rule = Callable[[Case], Iterator[Cause]]

_DISRUPTIONS = {
    "PreemptionByScheduler": ("preemption", "was preempted on node {node} by a pod of higher priority"),
    "DeletionByTaintManager": ("node lost", "was deleted because its node {node} was lost"),
    "DeletionByPodGC": ("node lost", "was deleted because its node {node} was lost and no longer exists"),
    "EvictionByEvictionAPI": ("drain", "was evicted because its node {node} was drained"),
    "TerminationByKubelet": ("node shutdown", "was ended by its node {node}, which shut down or ran out of a resource"),
}
"""Reasons of the condition DisruptionTarget (Kubernetes, "Pod disruption conditions")."""

_RESUME = "make resume continues it from its newest checkpoint"
_OF_SPOT = frozenset({"node lost", "drain", "node shutdown"})
_IMAGES = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_HARMLESS = frozenset({"ContainerCreating", "PodInitializing", ""})
_HINDRANCES = frozenset(
    {"FailedScheduling", "FailedMount", "FailedAttachVolume", "FailedCreate", "FailedCreatePodSandBox"}
)

_TEXTS = (
    (r"did not answer within", "hang", "its log and stack name the line in which it hangs"),
    (r"No space left on device|Disk quota exceeded", "disk full", "free space, or keep fewer checkpoints"),
    (r"CUDA out of memory|OutOfMemoryError", "GPU memory", "lower loop.global_batch or raise loop.accumulation"),
    (r"was killed by SIGKILL", "killed", "often the kernel's out-of-memory killer: give the ranks more memory"),
    (r"was killed by SIG", "crash", "native code crashed: the stack in failures/ names the line"),
    (r"died without reporting", "rank lost", "often the out-of-memory killer, or its node was lost"),
    (r"NCCL|Dist(?:Backend|Network|Store)?Error|gloo", "connection", "look for a rank or a node that was lost before"),
    (r"ended with exit code", "exit", "an exception reports an error; sys.exit and os._exit do not"),
    (r"rank \d+ failed: ", "exception", "the traceback is in the log"),
)
"""What the trainer writes (`training.failures`), the kind of the failure, and what to do where it advises nothing itself."""

_STOPPED = re.compile(r"exit code 130\b")
_DEACTIVATED = re.compile(r"deactivated due to (.*)")


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
            yield Cause(kind="stopped", sentence=f"{_subject(case)} was stopped", remedy=_RESUME)
        return
    newest = record.newest_transition
    is_inactive = record.workload is not None and not record.workload.is_active
    if (is_inactive and not _by_kueue(record)) or (newest is not None and newest.driver == "STOPPED"):
        yield Cause(kind="stopped", sentence=f"{_subject(case)} was stopped by its team", remedy=_RESUME)


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
        waited = next((cause for rule in _WAITING for cause in rule(case)), None)
        why = f": {waited.sentence}" if waited else f": {by_kueue}" if by_kueue else ""
        remedy = waited.remedy if waited else "find out why its nodes do not come, or choose another --group"
        yield Cause(
            kind="not ready", sentence=f"the pods of {_subject(case)} did not start in time{why}", remedy=remedy
        )


def _memory(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for container, end in pod.ends:
            if end.reason == "OOMKilled":
                yield Cause(
                    kind="memory",
                    sentence=f"{_pod(pod)}, container {container.name}: {end}: it used more memory than its limit",
                    remedy="more memory for each rank, a smaller loop.global_batch, or fewer loader workers",
                    time=end.finished,
                )


def _evicted(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        if pod.reason == "Evicted":
            yield Cause(
                kind="eviction",
                sentence=f"{_pod(pod)} was evicted by its node {pod.node}: {pod.message or 'a resource ran out'}",
                remedy="ask for what it needs: the message names the resource",
                time=pod.ended or pod.gone or pod.started,
            )


def _disrupted(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for one in pod.disruptions:
            kind, text = _DISRUPTIONS.get(one.reason, ("disruption", f"was ended: {one.reason}"))
            sentence, remedy = f"{_pod(pod)} {text.format(node=pod.node)}", _RESUME
            if kind in _OF_SPOT and pod.capacity == "spot":
                kind, sentence = "spot", f"{sentence}, a spot node, which AWS may reclaim at any time"
                remedy = f"{_RESUME}; on-demand capacity is not reclaimed"
            yield Cause(kind=kind, sentence=sentence, remedy=remedy, time=one.time)


def _lost_node(case: Case) -> Iterator[Cause]:
    """A pod that ended while its node was silent, or gone before anybody asked the pod to end."""
    for pod in _pods(case):
        is_lost = pod.node_state == "not ready" or (pod.node_state == "gone" and pod.asked_to_end is None)
        if is_lost and not pod.disruptions and (pod.ends or pod.gone):
            is_spot = pod.capacity == "spot"
            state = "was gone" if pod.node_state == "gone" else "did not answer"
            yield Cause(
                kind="spot" if is_spot else "node lost",
                sentence=f"{_pod(pod)} ended while its node {pod.node}{', a spot node,' if is_spot else ''} {state}",
                remedy=_RESUME,
                time=min((end.finished for _, end in pod.ends if end.finished), default=pod.gone),
            )


def _image(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for container in pod.containers:
            if container.reason in _IMAGES and container.state == "waiting":
                yield Cause(
                    kind="image",
                    sentence=f"{_pod(pod)}, container {container.name}: {container.reason}: {container.message}",
                    remedy="check that the image exists: make image PUSH=1 ENV=…",
                    time=pod.scheduled or pod.created,
                )


def _hindered(case: Case) -> Iterator[Cause]:
    """What kept pods from starting; it explains nothing once the driver has run."""
    if case.record is None or case.record.driver_started is not None:
        return
    warnings = [one for one in case.record.events.values() if one.reason in _HINDRANCES and one.type == "Warning"]
    for event in sorted(warnings, key=lambda one: str(one.last), reverse=True)[:1]:
        remedy = "wait for a node, or choose another group" if event.reason == "FailedScheduling" else ""
        yield Cause(
            kind="not scheduled" if event.reason == "FailedScheduling" else "not started",
            sentence=f"{event.object}: {event.reason}: {event.message}",
            remedy=remedy,
            time=event.first,
        )
    for pod in _pods(case):
        for one in pod.containers:
            if one.state == "waiting" and one.reason not in _HARMLESS | _IMAGES:
                yield Cause(
                    kind="not started", sentence=f"{_pod(pod)}, container {one.name}: {one.reason}: {one.message}"
                )


def _reported(case: Case) -> Iterator[Cause]:
    """What the trainer says. Of a run the last report counts, because it recovered from the others."""
    for report in case.reports[-1:]:
        kind, advice = next(
            ((kind, advice) for text, kind, advice in _TEXTS if re.search(text, report.text)), ("error", "")
        )
        remedy = report.remedy or advice
        yield Cause(kind=kind, sentence=report.text, remedy=remedy, time=report.time)


def _exited(case: Case) -> Iterator[Cause]:
    """A container of Ray that ended with an error; a submitter's status only repeats the driver's."""
    for pod in _pods(case):
        for container, end in pod.ends:
            if pod.kind != "submitter" and end.reason != "OOMKilled":
                said = f": {end.message}" if end.message else ""
                yield Cause(
                    kind="container",
                    sentence=f"{_pod(pod)}, container {container.name}: {end}{said}",
                    remedy="its last log lines say more",
                    time=end.finished,
                )


def _exited_with_130(case: Case) -> Iterator[Cause]:
    if case.record is not None and _STOPPED.search(case.record.message):
        yield Cause(
            kind="stopped", sentence=f"{_subject(case)} saved its state and stopped, as it was asked to", remedy=_RESUME
        )


def _still_runs(case: Case) -> Iterator[Cause]:
    if case.state != "runs":
        return
    newest = case.record.newest_transition if case.record else None
    waited = next((cause for rule in _WAITING for cause in rule(case)), None)
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
            sentence=f"the driver of {_subject(case)} ended without a word: it was killed, or its machine was lost",
            remedy=f"dmesg tells of the out-of-memory killer; {_RESUME}",
        )


def _last_word(case: Case) -> Iterator[Cause]:
    newest = case.record.newest_transition if case.record else None
    said = ": ".join(part for part in (newest.reason, newest.message) if part) if newest else ""
    yield Cause(kind="unknown", sentence=f"{_subject(case)} failed{f': {said}' if said else ', and nothing says why'}")


DECISIONS: Sequence[Rule] = (_done, _stopped_by_user, _deadline, _never_ready, _still_runs)
EVIDENCE: Sequence[Rule] = (_memory, _evicted, _disrupted, _lost_node, _image, _hindered, _exited, _reported)
FALLBACK: Sequence[Rule] = (_exited_with_130, _deleted, _killed, _last_word)
_WAITING: Sequence[Rule] = (_image, _hindered)


def _subject(case: Case) -> str:
    return f"{'job' if case.is_job else 'run'} {case.name}"


def _pod(pod: PodRecord) -> str:
    return f"pod {pod.name}"


def _pods(case: Case) -> list[PodRecord]:
    return case.record.last_pods if case.record else []


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
