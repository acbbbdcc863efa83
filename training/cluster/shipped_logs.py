"""Logs of pods that are gone, from the store that the stack ships them to.

The records are those of `platform_charts.charts.fluent_bit`. A store may return more than the query asks for: what is not of the
job is dropped here, so a store's own filter only saves transfer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from infra.spec.outputs import StackOutputs
from training.cluster.cloudwatch_logs import CloudWatchLogs
from training.cluster.loki_logs import LokiLogs
from training.cluster.shipped_query import LogQuery, ShippedRecord

LOKI_URL_VARIABLE = "RTP_LOKI_URL"
"""URL of the stack's Loki from this machine, e.g. of a port forwarding; without it that of the stack outputs."""

_LONGEST_SEARCH_S = 120.0


class LogStore(Protocol):
    """A store of shipped records.

    Attributes:
        place: the store in words, for messages.
    """

    @property
    def place(self) -> str:
        """The store in words, for messages."""

    def search(self, query: LogQuery) -> Iterator[ShippedRecord]:
        """Records that may match, in any order, with every page.

        Raises:
            RefusedError: the store is not reachable, or refuses the request.
        """


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What one pod has logged.

    Attributes:
        pod: name of the pod. Every attempt of a job has its own pods.
        first: time of its first line.
        last: time of its last line.
        lines: the lines, by time.
    """

    pod: str
    first: datetime
    last: datetime
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Found:
    """Result of a search.

    Attributes:
        attempts: the pods with matching lines, the newest first.
        is_complete: whether the search ended before its time limit.
    """

    attempts: Sequence[Attempt]
    is_complete: bool


def log_store_of(outputs: StackOutputs, *, environment: Mapping[str, str]) -> LogStore | None:
    """The store of a stack; None if the logs end with the pods."""
    logs = outputs.logs
    if logs.log_group is not None:
        return CloudWatchLogs(group=logs.log_group, region=outputs.region)
    if logs.loki_url is not None:
        return LokiLogs(url=environment.get(LOKI_URL_VARIABLE) or logs.loki_url, cluster=outputs.cluster.name)
    return None


def find_lines(store: LogStore, query: LogQuery, *, seconds: float = _LONGEST_SEARCH_S) -> Found:
    """Search a store, for a limited time.

    Raises:
        RefusedError: the store is not reachable, or refuses the request.
    """
    deadline, is_complete = time.monotonic() + seconds, True
    by_pod: dict[str, list[tuple[int, str]]] = {}
    for record in store.search(query):
        parsed = _parsed(record.text)
        if query.matches(parsed):
            by_pod.setdefault(str(parsed.get("pod", "unknown")), []).append((record.time_ns, _line(parsed)))
        if time.monotonic() > deadline:
            is_complete = False
            break
    attempts = [_attempt(pod, sorted(lines, key=lambda one: one[0])) for pod, lines in by_pod.items()]
    return Found(attempts=sorted(attempts, key=lambda one: one.last, reverse=True), is_complete=is_complete)


def _attempt(pod: str, lines: Sequence[tuple[int, str]]) -> Attempt:
    first, last = (datetime.fromtimestamp(at / 1e9, UTC) for at in (lines[0][0], lines[-1][0]))
    return Attempt(pod=pod, first=first, last=last, lines=[line for _, line in lines])


def _parsed(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _line(record: Mapping[str, Any]) -> str:
    """The line, or the lines of a traceback, that the container wrote."""
    if "record" in record:
        return json.dumps(record["record"], ensure_ascii=False)
    return str(record.get("log", ""))
