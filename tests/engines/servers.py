"""Servers of tests: programs, and small HTTP servers in a thread of this process."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    is_ready: Callable[[], bool],
    seconds: float = 60.0,
    **options: Any,  # noqa: ANN401 - of Popen
) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its output in `log`, from when it is ready until the context exits.

    Raises:
        AssertionError: it ended, or was not ready after so many seconds; shows the end of the log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **options)
    try:
        deadline = time.monotonic() + seconds
        while not is_ready():
            assert process.poll() is None, f"{command[0]} did not start:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{command[0]} did not answer:\n{log.read_text()[-2000:]}"
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


def answers(url: str, *, status: int = 200) -> bool:
    """Whether a GET of a URL is answered with this status."""
    try:
        return urllib3.request("GET", url, retries=False, timeout=10.0).status == status
    except urllib3.exceptions.HTTPError:
        return False


class Handler(BaseHTTPRequestHandler):
    """Answers requests, and prints nothing."""

    def answer(self, status: int, body: bytes = b"") -> None:
        """Send a JSON document."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests on loopback while the context is open; gives the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Let a server answer in a thread while the context is open."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
