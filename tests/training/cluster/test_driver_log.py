"""The driver's log: every line once, in order, over connections that break in the middle of a line, and none of Ray's own.

No pod of these tests has a log, so a small HTTP server answers in place of the API server. Its stream, and the
network that is cut, are real. The texts of Ray are those of 2.60 on a real cluster.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from infra.kube.api import KubernetesApi
from tests.engines.servers import Handler, serving
from tests.engines.tcp_proxy import Proxy
from tests.waiting import wait_until
from training.cluster.driver_log import DriverLog, LogCursor
from training.cluster.submitter_log import SubmitterLog
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

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.resumed = threading.Event()
        self.since: list[str] = []


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    server: LogServer

    def do_GET(self) -> None:  # noqa: N802
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


@pytest.fixture
def server() -> Iterator[LogServer]:
    with LogServer() as made, serving(made):
        yield made
        made.resumed.set()


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
    micros, text = line
    return f"2026-11-21T08:00:{micros // 1_000_000:02d}.{micros % 1_000_000:06d}000Z {text}"


@given(lines=SOME_LINES, breaks=st.lists(st.integers(0, 30), max_size=4))
def test_every_line_comes_once_however_often_the_connection_breaks(lines: list[Line], breaks: list[int]) -> None:
    log, cursor, got = [stamped(line) for line in lines], LogCursor(), list[str]()
    for length in [*breaks, len(log)]:
        cursor.reconnect()
        since = (cursor.since or "")[:19]  # a new connection starts with a whole second
        taken = (cursor.take(line) for line in [line for line in log if line[:19] >= since][:length])
        got += [text for text in taken if text is not None]
    assert got == [text for _, text in lines]


def test_two_equal_lines_with_equal_times_are_both_kept() -> None:
    cursor = LogCursor()
    assert [cursor.take(stamped((1, "step"))), cursor.take(stamped((1, "step")))] == ["step", "step"]


_BEFORE = (
    "2026-11-27 22:47:07,216\tINFO cli.py:42 -- \x1b[37mJob submission server address\x1b[39m: \x1b[1mhttp://rolled:8265\x1b[22m",
    "2026-11-27 22:47:07,382\tSUCC cli.py:67 -- \x1b[32mJob 'rolled-wtng7' submitted successfully\x1b[39m",
    "2026-11-27 22:47:07,382\tINFO cli.py:341 -- \x1b[1mray job stop rolled-wtng7\x1b[22m",
)
_DRIVER = (
    "2026-11-27 22:47:07,283\tINFO job_manager.py:581 -- Runtime env is setting up.",
    "run rolled: simple_cnn on digits, 2 CPU workers (ray), global batch 64",
    "Traceback (most recent call last):",
    '  File "/mnt/code/train.py", line 3, in <module>',
    "ValueError: Status message: the user's own",
)
_CLOSED = "2026-11-27 22:47:48,003\tINFO sdk.py:520 -- WebSocket closed for job rolled-wtng7 with close code 1000"
_LAST = "cost $0.0021, 22.8 % of it productive"
_SUCCEEDED = ("2026-11-27 22:47:48,284\tSUCC cli.py:67 -- \x1b[32mJob 'rolled-wtng7' succeeded\x1b[39m",)
_FAILED = (
    "2026-11-27 22:47:48,284\tERR cli.py:75 -- \x1b[31mJob 'rolled-wtng7' failed\x1b[39m",
    "Status message: Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):",
    "run rolled: simple_cnn on digits, 2 CPU workers (ray), global batch 64",
)
_HEAD_GONE = (
    "Traceback (most recent call last):",
    '  File "/opt/.venv/lib/python3.11/site-packages/urllib3/connection.py", line 239, in _new_conn',
    "socket.gaierror: [Errno -2] Name or service not known",
    "",
    "The above exception was the direct cause of the following exception:",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='rolled-x2w7g-head-svc.research.svc.cluster.local', port=8265)",
)
_NO_DRIVER = "2026-11-27 22:47:48,284\tERR cli.py:304 -- the job could not be submitted"


def _shown(*lines: str) -> list[str]:
    log = SubmitterLog()
    return [line for line in lines if log.is_shown(line)]


def test_only_a_driver_s_lines_are_shown_also_those_that_look_like_ray_s() -> None:
    assert _shown(*_BEFORE, *_DRIVER) == [*_DRIVER]
    for end in (_SUCCEEDED, _FAILED, _HEAD_GONE):
        assert _shown(*_BEFORE, *_DRIVER, _CLOSED, *end) == [*_DRIVER]
    assert _shown(_CLOSED, _LAST, *_HEAD_GONE) == [_LAST], "a last line may come after the end"
    assert _shown(_BEFORE[0], _NO_DRIVER, *_HEAD_GONE) == [_NO_DRIVER, *_HEAD_GONE], "the reason of no driver"


def test_ray_says_so() -> None:
    """An update of Ray that changes its texts would show them again."""
    package = Path(ray.__file__).parent / "dashboard" / "modules" / "job"
    client = (package / "sdk.py").read_text(encoding="utf-8")
    assert 'f"WebSocket closed for job {job_id} with' in client
    assert 'f"WebSocket error for job {job_id}' in client
    assert 'print(f"Status message: {info.message}"' in (package / "cli.py").read_text(encoding="utf-8")
