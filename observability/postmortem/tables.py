"""The tables of the page and the text: pods, events, status changes and Ray's state, as rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from observability.postmortem.case import Case
from observability.postmortem.record import EventRecord, JobRecord, PodRecord
from observability.quantities import duration

Row = tuple[str, ...]

POD_HEADINGS = ("pod", "kind", "node", "zone", "type", "created", "waited", "ran", "restarts", "end")
EVENT_HEADINGS = ("last", "count", "object", "type", "reason", "message")
STATUS_HEADINGS = ("seen", "KubeRay", "driver", "reason", "message")
RAY_HEADINGS = ("attempt", "what", "state", "reason")

_LONGEST = 300


def facts(case: Case) -> list[tuple[str, str]]:
    """Labels and values of the job or run."""
    record = case.record
    if record is None:
        return list(case.links)
    workload = record.workload
    rows = [
        ("namespace", record.namespace),
        ("queue", record.labels.get("kueue.x-k8s.io/queue-name", "")),
        ("priority", record.labels.get("kueue.x-k8s.io/priority-class", "")),
        ("node groups", ", ".join(f"{pods}: {group}" for pods, group in workload.flavors.items()) if workload else ""),
        ("created", moment(record.created)),
        (
            "driver",
            f"{moment(record.driver_started)} to {moment(record.driver_ended) or 'now'}"
            if record.driver_started
            else "",
        ),
        ("ended", f"{moment(record.ended)} ({record.ending})" if record.ended else ""),
        ("attempts", str(len(record.clusters) or record.attempts)),
        ("progress", record.progress),
        ("evictions", "; ".join(one.message for one in workload.evictions) if workload else ""),
        ("left out of the record", ", ".join(f"{count} {kind}" for kind, count in record.left_out.items())),
        *case.links,
    ]
    return [(label, value) for label, value in rows if value]


def pod_rows(record: JobRecord) -> list[Row]:
    """Every pod, those that failed first."""
    return [_pod(pod) for pod in sorted(record.pods.values(), key=_order)]


def event_rows(record: JobRecord) -> list[Row]:
    """Every event, warnings first, each in the order of time."""
    found = sorted(record.events.values(), key=lambda one: (one.type == "Normal", str(one.first)))
    return [_event(one) for one in found]


def status_rows(record: JobRecord) -> list[Row]:
    """The changes of the job's status."""
    return [
        (moment(one.time), one.deployment, one.driver, one.reason, shortened(one.message)) for one in record.transitions
    ]


def ray_rows(case: Case) -> list[Row]:
    """Ray's own state after each failure."""
    return [(str(one.attempt), one.what, one.state, shortened(one.why)) for one in case.ray]


def text_table(rows: Sequence[Row]) -> str:
    """Rows in columns of equal width; the first row is the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def moment(time: datetime | None) -> str:
    """A time in UTC; empty if it is not known."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A message on one line."""
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[:longest]} …"


def _order(pod: PodRecord) -> tuple[bool, str, str]:
    return not (pod.ends or pod.disruptions or pod.reason), pod.kind, str(pod.created)


def _pod(pod: PodRecord) -> Row:
    node = f"{pod.node} ({pod.node_state})" if pod.node_state not in {"", "ready"} else pod.node
    kind = f"{pod.instance_type} {pod.capacity}".strip()
    over = pod.ended or pod.gone
    return (
        pod.name,
        pod.kind,
        node,
        pod.zone,
        kind,
        moment(pod.created),
        _between(pod.created, pod.started),
        _between(pod.started, over),
        str(sum(one.restarts for one in pod.containers)),
        pod.state,
    )


def _between(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else duration(max(0.0, (end - start).total_seconds()))


def _event(event: EventRecord) -> Row:
    return (
        moment(event.last),
        str(event.count),
        event.object,
        event.type,
        event.reason,
        shortened(event.message),
    )
