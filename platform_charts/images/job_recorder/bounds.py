"""The largest size of a record, and what is left out of one that is larger; pure functions.

A ConfigMap holds a megabyte, but a shipped line of a log 256 kB (Fluent Bit's buffer of a line, CloudWatch's event). What is
left out first explains least: see `_STEPS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from .document import Container, Ended, Event, Pod, Record, Workload
from .text import head, tail

LARGEST = 192 * 1024
"""Bytes of a record as JSON."""

_SHORT = 256

_T = TypeVar("_T")


def bounded(record: Record) -> Record:
    """The record without what does not fit into `LARGEST` bytes; itself if all of it does."""
    for step in _STEPS:
        if size(record) <= LARGEST:
            break
        record = step(record)
    return record


def size(record: Record) -> int:
    """Bytes of a record as it is written."""
    return len(to_text(record).encode())


def to_text(record: Record) -> str:
    """A record as it is written, on one line."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def is_failure(pod: Pod) -> bool:
    """Whether a pod shows that something went wrong before anybody asked it to end."""
    return bool(pod["reason"] or pod["disruptions"] or any(map(_is_bad, _ends(pod))))


def _ends(pod: Pod) -> list[Ended]:
    asked = pod["asked_to_end"]
    found = [end for one in pod["containers"] for end in one["ended"]]
    return [end for end in found if not asked or end["finished"] < asked]


def _is_bad(end: Ended) -> bool:
    return end["exit_code"] != 0 or end["signal"] != 0


def _events(record: Record, *, normal: bool, most: int) -> Record:
    """At most so many normal events, or warnings: half of them the first, half the last."""
    chosen = sorted((one for one in record["events"].values() if (one["type"] == "Normal") == normal), key=_event_time)
    out = {one["uid"] for one in _middle(chosen, most)}
    events = {uid: one for uid, one in record["events"].items() if uid not in out}
    return _left_out({**record, "events": events}, "events", len(out))


def _event_time(event: Event) -> str:
    return event["first"]


def _plain_pods(record: Record) -> Record:
    """The containers and messages of pods without a failure say nothing."""
    plain: dict[str, Pod] = {
        uid: pod if is_failure(pod) else {**pod, "containers": [], "message": ""} for uid, pod in record["pods"].items()
    }
    return {**record, "pods": plain}


def _pods(record: Record, *, failed: bool, most: int) -> Record:
    """At most so many pods with a failure, or without one: the first to end, because the others follow from it."""
    chosen = sorted((pod for pod in record["pods"].values() if is_failure(pod) == failed), key=_end_time)
    out = {pod["uid"] for pod in chosen[most:]}
    pods = {uid: pod for uid, pod in record["pods"].items() if uid not in out}
    return _left_out({**record, "pods": pods}, "pods", len(out))


def _end_time(pod: Pod) -> tuple[str, bool, str]:
    times = [end["finished"] for end in _ends(pod) if _is_bad(end)] + [one["time"] for one in pod["disruptions"]]
    return min(times, default=pod["ended"] or pod["gone"] or "9"), pod["kind"] != "head", pod["created"]


def _transitions(record: Record, *, most: int) -> Record:
    out = _middle(record["transitions"], most)
    kept = [one for one in record["transitions"] if not any(one is other for other in out)]
    return _left_out({**record, "transitions": kept}, "transitions", len(out))


def _short_messages(record: Record) -> Record:
    pods: dict[str, Pod] = {
        uid: {
            **pod,
            "message": head(pod["message"], _SHORT),
            "disruptions": [{**one, "message": head(one["message"], _SHORT)} for one in pod["disruptions"]],
            "containers": [_short(one) for one in pod["containers"]],
        }
        for uid, pod in record["pods"].items()
    }
    events: dict[str, Event] = {
        uid: {**event, "message": head(event["message"], _SHORT)} for uid, event in record["events"].items()
    }
    return {**record, "pods": pods, "events": events}


def _short(container: Container) -> Container:
    ended: list[Ended] = [{**end, "message": tail(end["message"], _SHORT)} for end in container["ended"]]
    return {**container, "message": head(container["message"], _SHORT), "ended": ended}


def _least(record: Record) -> Record:
    """What is left of the largest record: conditions without messages, and the newest cluster."""
    clusters = list(record["clusters"].values())[-1:]
    workload: Workload | None = record["workload"]
    if workload is not None:
        workload = {
            **workload,
            "conditions": [{**one, "message": head(one["message"], _SHORT)} for one in workload["conditions"]],
            "evictions": [{**one, "message": head(one["message"], _SHORT)} for one in workload["evictions"][-5:]],
        }
    pods: dict[str, Pod] = {
        uid: {
            **pod,
            "disruptions": pod["disruptions"][:1],
            "containers": [{**one, "ended": one["ended"][:1]} for one in pod["containers"][:4]],
        }
        for uid, pod in record["pods"].items()
    }
    return {**record, "clusters": {one["uid"]: one for one in clusters}, "workload": workload, "pods": pods}


def _middle(items: Sequence[_T], most: int) -> Sequence[_T]:
    """What lies between the first and the last of more than `most` items."""
    return items[most // 2 : len(items) - (most - most // 2)] if len(items) > most else ()


def _left_out(record: Record, kind: str, count: int) -> Record:
    if not count:
        return record
    return {**record, "left_out": {**record["left_out"], kind: record["left_out"].get(kind, 0) + count}}


_STEPS: Sequence[Callable[[Record], Record]] = (
    partial(_events, normal=True, most=60),
    _plain_pods,
    partial(_events, normal=True, most=0),
    partial(_events, normal=False, most=100),
    partial(_pods, failed=False, most=200),
    partial(_transitions, most=40),
    partial(_pods, failed=True, most=100),
    _short_messages,
    partial(_pods, failed=False, most=20),
    partial(_pods, failed=True, most=30),
    partial(_events, normal=False, most=30),
    partial(_transitions, most=20),
    partial(_pods, failed=False, most=4),
    partial(_pods, failed=True, most=8),
    _least,
)
"""In this order, until it fits: normal events, details of pods that did well, warnings between the first and the last, pods that
did well, then the later ones of those that failed. The first failure, and the job's own status, always stay."""
