"""`postmortem` of a job on a cluster, from its record and the logs of its pods, live or shipped."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.errors import PlatformError
from infra.spec.section import did_you_mean
from observability.postmortem.case import Case, Earlier, LogTail, Report, State
from observability.postmortem.causes import first_cause
from observability.postmortem.record import JobRecord, PodRecord
from platform_charts.jobs.progress import SUBMITTER_CONTAINER
from training.cluster.context import ClusterContext
from training.cluster.records import recorded_names, records_of
from training.cluster.shipped_logs import LogStore, find_lines, log_store_of
from training.cluster.shipped_query import LogQuery
from training.cluster.steps import connection_of, context_with, contexts_of
from training.errors import SettingsError
from training.options.runs import PostmortemOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_LINES = 40
_MOST_LOGS = 6
_SEARCH_SECONDS = 20.0

_EXIT = re.compile(r"entrypoint command failed with exit code (-?\d+)")
"""What Ray's job supervisor reports for a failed driver; KubeRay copies it into the RayJob's message."""

_INTERRUPTED = 130
_RAISED = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*", re.MULTILINE)
_ERROR = re.compile(r"^error: (?P<text>.*)(?:\n  remedy: (?P<remedy>.*))?", re.MULTILINE)
"""How every command of ours ends that failed."""

FOLDER = Path(".local/postmortem")


def case_of(arguments: PostmortemOptions) -> Case:
    """What is known of a job.

    Raises:
        PlatformError: there is no record of it, or this user may not read it.
    """
    contexts = contexts_of(arguments)
    api = connection_of(contexts[0], arguments)

    def names(context: ClusterContext) -> list[str]:
        return list(recorded_names(api, context.team.namespace))

    context = context_with(contexts, "record", names, name=arguments.run)
    record, *earlier = find_records(api, context.team.namespace, arguments.run)
    store = log_store_of(context.target.outputs, environment=os.environ)
    links = [
        ("run directory", f"/mnt/runs/{record.name} in the pods of team {context.team.name}"),
        ("whole log", context.hint("logs", record.name)),
    ]
    return make_case(record, earlier, logs=list(_logs(api, record, store)), links=links)


def find_records(api: KubernetesApi, namespace: str, name: str | None) -> list[JobRecord]:
    """The records of a job, or of the job whose record is the newest; the newest submission's first.

    Raises:
        SettingsError: there is none; names those that there are.
    """
    known = recorded_names(api, namespace)
    chosen = name or next(iter(known), None)
    found = records_of(api, namespace, chosen) if chosen else []
    if found:
        return found
    there = did_you_mean(name, list(known)) if name else ""
    listed = f"jobs with a record, newest first: {', '.join(known[:8])}" if known else ""
    recorder = "the recorder makes one when a job is submitted: kubectl -n monitoring logs deployment/job-recorder"
    raise SettingsError(
        f"namespace {namespace} has no record of {'any job' if name is None else f'a job {name}'}",
        remedy="; ".join(filter(None, (there, listed))) or recorder,
    )


def make_case(
    record: JobRecord,
    earlier: Sequence[JobRecord] = (),
    *,
    logs: Sequence[LogTail] = (),
    links: Sequence[tuple[str, str]] = (),
) -> Case:
    """The case of a record, with those of earlier submissions of the same name."""
    before = [Earlier(created=one.created, summary=first_cause(make_case(one)).sentence) for one in earlier]
    return Case(
        name=record.name,
        is_job=True,
        state=_state(record),
        reports=list(_reports(record)),
        record=record,
        logs=logs,
        earlier=before,
        links=links,
        now=datetime.now(UTC),
    )


def _state(record: JobRecord) -> State:
    newest, workload = record.newest_transition, record.workload
    if newest is not None and newest.driver == "STOPPED":
        return "stopped"
    if record.ending == "":
        return "stopped" if workload is not None and not workload.is_active else "runs"
    if record.ending == "Complete":
        return "done"
    if record.ending == "Deleted":
        return "deleted"
    return "stopped" if _exit_code(record) == _INTERRUPTED else "failed"


def _exit_code(record: JobRecord) -> int | None:
    found = _EXIT.search(record.message)
    return int(found[1]) if found else None


def _reports(record: JobRecord) -> Iterator[Report]:
    """What the driver said last, as far as KubeRay kept it."""
    code, time = _exit_code(record), record.driver_ended or record.ended
    if code is None or code == _INTERRUPTED:
        return
    said = list(_ERROR.finditer(record.message))
    if said:
        yield Report(time=time, text=said[-1]["text"], remedy=said[-1]["remedy"] or "")
        return
    raised = _RAISED.findall(record.message)
    text = f"the driver exited with code {code}"
    yield Report(time=time, text=f"{text}: {raised[-1]}" if raised else text)


def _logs(api: KubernetesApi, record: JobRecord, store: LogStore | None) -> Iterator[LogTail]:
    """The ends of the logs that matter: of the driver, of pods that failed, and of the head."""
    for pod in _interesting(record)[:_MOST_LOGS]:
        title = f"log of {pod.kind} {pod.name}"
        if pod.gone is None:
            try:
                container = SUBMITTER_CONTAINER if pod.kind == "submitter" else f"ray-{pod.kind}"
                lines = list(api.log(pod.name, namespace=record.namespace, container=container, tail=_LINES))
                yield LogTail(title=title, lines=lines, note="" if lines else "it has logged nothing")
                continue
            except ApiError as error:
                note = str(error.args[0])
        else:
            note = "the pod is gone"
        yield _shipped(record, pod, store, title=title, note=note)


def _interesting(record: JobRecord) -> list[PodRecord]:
    pods = sorted(record.pods.values(), key=lambda pod: str(pod.created), reverse=True)
    submitters = [pod for pod in pods if pod.kind == "submitter"][:1]
    failed = [pod for pod in record.last_pods if pod.ends or pod.disruptions or pod.reason]
    heads = [pod for pod in pods if pod.kind == "head"][:1]
    return list({pod.uid: pod for pod in (*submitters, *failed[: _MOST_LOGS - 2], *heads)}.values())


def _shipped(record: JobRecord, pod: PodRecord, store: LogStore | None, *, title: str, note: str) -> LogTail:
    """The end of the log of a pod that is gone; a store that does not answer is no reason to show nothing else."""
    if store is None:
        return LogTail(title=title, lines=(), note=f"{note}, and this environment ships no logs")
    since = record.created or datetime.now(UTC)
    query = LogQuery(namespace=record.namespace, job=record.name, since=since, pod=pod.name)
    try:
        found = find_lines(store, query, seconds=_SEARCH_SECONDS)
    except PlatformError as error:
        return LogTail(title=title, lines=(), note=f"{note}; {error.args[0]}")
    lines = deque((line for one in reversed(found.attempts) for line in one.lines), maxlen=_LINES)
    missing = "" if found.is_complete else "the search was cut short, lines may be missing"
    return LogTail(
        title=title, lines=list(lines), note=missing if lines else f"{note}, and {store.place} has no line of it"
    )
