"""A small double of Loki: takes pushed streams, and answers range queries with label matchers and a limit.

Loki is a Go program whose module cannot be built as a dependency, so a real one is not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.engines.servers import Handler, http_server

_MATCHER = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Loki:
    """The server's content."""

    url: str = ""
    lines: list[tuple[dict[str, str], int, str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    def answer(self, query: str, *, start: int, end: int, limit: int) -> list[dict[str, object]]:
        """The streams of a forward query: times from `start` inclusive to `end` exclusive, the oldest `limit` lines."""
        self.queries.append(query)
        wanted = dict(_MATCHER.findall(query.partition("}")[0]))
        found = [one for one in self.lines if wanted.items() <= one[0].items() and start <= one[1] < end]
        found.sort(key=lambda one: one[1])
        return [{"stream": labels, "values": [[str(at), line]]} for labels, at, line in found[:limit]]


@contextmanager
def loki() -> Iterator[Loki]:
    """A server until the context exits."""
    content = Loki()

    class LokiHandler(Handler):
        """Answers the push and the range query."""

        def do_POST(self) -> None:  # noqa: N802
            """Store the streams of a push."""
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for stream in body["streams"]:
                content.lines += [(stream["stream"], int(at), line) for at, line, *_ in stream["values"]]
            self.answer(204)

        def do_GET(self) -> None:  # noqa: N802
            """Answer a query."""
            asked = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            assert asked["direction"] == "forward"
            numbers = {key: int(asked[key]) for key in ("start", "end", "limit")}
            result = content.answer(asked["query"], **numbers)
            self.answer(200, json.dumps({"status": "success", "data": {"result": result}}).encode())

    with http_server(LokiHandler) as content.url:
        yield content
