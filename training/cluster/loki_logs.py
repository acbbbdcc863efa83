"""Shipped logs in Loki, over its HTTP API."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.spec.errors import RefusedError
from training.cluster.shipped_query import LogQuery, ShippedRecord

_PAGE = 1000
"""Lines per request; Loki's default limit is 5000 (Grafana Loki, `max_entries_limit_per_query`)."""

_TIMEOUT_S = 30.0
_LABELS = ("namespace", "job", "container")
"""Fields of a query that are labels of the streams; see `platform_charts.charts.fluent_bit`."""


@dataclass(frozen=True, kw_only=True)
class LokiLogs:
    """A Loki server.

    Attributes:
        url: URL of the server without a path.
        cluster: value of the label `cluster`.
        page: lines per request.
    """

    url: str
    cluster: str
    page: int = _PAGE

    @property
    def place(self) -> str:
        """The store in words, for messages."""
        return f"Loki at {self.url}"

    def search(self, query: LogQuery) -> Iterator[ShippedRecord]:
        """Records of the job's streams, oldest first; see `LogStore.search`.

        The next page begins at the time of the last line, inclusive, because several lines may share it; those that the last page
        had are skipped.
        """
        start, end = int(query.since.timestamp()) * 10**9, time.time_ns()
        had: Counter[ShippedRecord] = Counter()
        while True:
            page = self._page(query, start=start, end=end)
            repeated = Counter(had)
            for record in page:
                if repeated[record]:
                    repeated[record] -= 1
                else:
                    yield record
            if len(page) < self.page:
                return
            last = page[-1].time_ns
            if last == start:
                start, had = last + 1, Counter()
            else:
                start, had = last, Counter(record for record in page if record.time_ns == last)

    def _page(self, query: LogQuery, *, start: int, end: int) -> list[ShippedRecord]:
        """One page in the order of time (Grafana Loki, HTTP API, "Query logs within a range of time")."""
        parameters = {
            "query": stream_selector(query, cluster=self.cluster),
            "start": str(start),
            "end": str(end),
            "limit": str(self.page),
            "direction": "forward",
        }
        address = f"{self.url}/loki/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http(s) by the settings' pattern
                streams = json.load(answer)["data"]["result"]
        except (OSError, ValueError, KeyError, urllib.error.HTTPError) as error:
            raise RefusedError(
                f"{self.place}: {error}",
                remedy="forward its port to this machine and set RTP_LOKI_URL, e.g. http://localhost:3100",
            ) from error
        found = [
            ShippedRecord(int(at), _with_labels(line, stream["stream"]))
            for stream in streams
            for at, line, *_ in stream["values"]
        ]
        return sorted(found, key=lambda record: record.time_ns)


def _with_labels(line: str, labels: Mapping[str, str]) -> str:
    """The record with its labels, which Fluent Bit takes out of the line."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    return json.dumps({**labels, **record}, ensure_ascii=False) if isinstance(record, dict) else line


def stream_selector(query: LogQuery, *, cluster: str) -> str:
    """A LogQL query of the streams, with a filter for a rank."""
    labels = {"cluster": cluster, **{key: value for key, value in query.fields.items() if key in _LABELS}}
    selector = ",".join(f'{key}="{value}"' for key, value in labels.items())
    by_rank = "" if query.rank is None else f' | json rank="record.rank" | rank="{query.rank}"'
    return f"{{{selector}}}{by_rank}"
