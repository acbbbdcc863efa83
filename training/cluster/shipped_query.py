"""What is searched for in a store of shipped logs, and what a store returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple


class ShippedRecord(NamedTuple):
    """A record of the store.

    Attributes:
        time_ns: time of the line in nanoseconds since 1970.
        text: the record as JSON.
    """

    time_ns: int
    text: str


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """Lines of a job.

    Attributes:
        namespace: the team's namespace.
        job: name of the job.
        since: earliest time of a line.
        container: name of the container; None: any.
        pod: name of the pod; None: any.
        rank: rank that logged the line, in a JSON record of the trainer; None: any.
    """

    namespace: str
    job: str
    since: datetime
    container: str | None = None
    pod: str | None = None
    rank: int | None = None

    @property
    def fields(self) -> dict[str, str]:
        """Values of top-level keys of a matching record."""
        wanted = {"namespace": self.namespace, "job": self.job, "container": self.container, "pod": self.pod}
        return {key: value for key, value in wanted.items() if value is not None}

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Whether a parsed record is asked for."""
        inner = record.get("record")
        rank = inner.get("rank") if isinstance(inner, Mapping) else None
        has_fields = all(record.get(key) == value for key, value in self.fields.items())
        return has_fields and (self.rank is None or rank == self.rank)
