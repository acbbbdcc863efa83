"""The driver's log: every line once, in order, over connections that break in the middle of a line.

No pod of these tests has a log, so a small HTTP server answers in place of the API server. Its stream, and the
network that is cut, are real.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from infra.kube.api import KubernetesApi
from tests.training.cluster.proxy import Proxy
from tests.training.cluster.team_cluster import wait_until
from training.cluster.driver_log import DriverLog, LogCursor
from training.cluster.watch import JobWatch

LINES = [
    f"2026-11-21T08:00:{second:02d}.{part}00000000Z line {second}.{part}" for second in range(3) for part in range(4)
]
CUT_AFTER = 6
POD = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list"]}
SUBMITTER = {"metadata": {"name": "submitter", "uid": "1", "creationTimestamp": "2026-11-21T08:00:00Z"}}
DISCOVERY = {
    "/version": {"kind": "Info"},
    "/apis": {"kind": "APIGroupList", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "resources": [POD, {**POD, "name": "pods/log"}]},
}


class LogServer(ThreadingHTTPServer):
    """Serves one submitter pod; its log pauses in the middle until `resumed` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.resumed = threading.Event()
        self.since: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LogServer

    def do_GET(self) -> None:
        """The list of pods, or the log."""
        place = urlsplit(self.path)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not place.path.endswith("/log"):
            self._chunk(json.dumps(DISCOVERY.get(place.path, {"items": [SUBMITTER]})))
            return self._chunk("")
        since = parse_qs(place.query).get("sinceTime", [""])[0]
        self.server.since.append(since)
        for number, line in enumerate(LINES):
            if line[:19] < since[:19]:
                continue
            if number == CUT_AFTER and not self.server.resumed.is_set():
                self._chunk(line[:30])
                self.server.resumed.wait(60)
                return None
            self._chunk(f"{line}\n")
        return self._chunk("")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def server() -> Iterator[LogServer]:
    """A server per test."""
    made = LogServer()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.resumed.set()
    made.shutdown()
    made.server_close()


def test_after_a_cut_the_log_continues_with_the_next_line(server: LogServer) -> None:
    with Proxy(server.server_port) as proxy:
        api = KubernetesApi(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{proxy.port}")))
        log = DriverLog(api, JobWatch(api, namespace="research", name="digits"))
        log.start()
        got: list[str] = []

        def has(count: int) -> bool:
            got.extend(log.take())
            return len(got) >= count

        wait_until(lambda: has(CUT_AFTER))
        proxy.cut()
        server.resumed.set()
        proxy.restore()
        wait_until(lambda: has(len(LINES)))
        got.extend(log.finish(seconds=60))
    assert got == [line.partition(" ")[2] for line in LINES]
    assert server.since[:2] == ["", "2026-11-21T08:00:01Z"]


Line = tuple[int, str]
SOME_LINES = st.lists(st.tuples(st.integers(0, 9_999_999), st.sampled_from(["step", "loss", ""])), max_size=30).map(
    lambda lines: sorted(lines, key=lambda line: line[0])
)
"""Lines by their time in microseconds, several in a second and some equal."""


def stamped(line: Line) -> str:
    """The line as the kubelet sends it."""
    micros, text = line
    return f"2026-11-21T08:00:{micros // 1_000_000:02d}.{micros % 1_000_000:06d}000Z {text}"


def served(log: list[str], since: str | None) -> list[str]:
    """The lines of a new connection: those since `since`, a whole second."""
    return log if since is None else [line for line in log if line[:19] >= since[:19]]


@given(lines=SOME_LINES, breaks=st.lists(st.integers(0, 30), max_size=4))
def test_every_line_comes_once_however_often_the_connection_breaks(lines: list[Line], breaks: list[int]) -> None:
    log, cursor, got = [stamped(line) for line in lines], LogCursor(), list[str]()
    for length in [*breaks, len(log)]:
        cursor.reconnect()
        taken = (cursor.take(line) for line in served(log, cursor.since)[:length])
        got += [text for text in taken if text is not None]
    assert got == [text for _, text in lines]


def test_two_equal_lines_with_equal_times_are_both_kept() -> None:
    cursor = LogCursor()
    assert [cursor.take(stamped((1, "step"))), cursor.take(stamped((1, "step")))] == ["step", "step"]
