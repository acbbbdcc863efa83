"""The dashboards of all Ray clusters, which the KubeRay operator queries, as an HTTP proxy on loopback.

A fake, because fake nodes run no containers. It answers both requests of ray-operator/controllers/ray/utils/dashboardclient
by the name of the RayJob, with 404 for an unknown job.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_JOBS = "/api/jobs/"


class Dashboards:
    """The drivers of all jobs.

    Attributes:
        address: URL of the proxy.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._drivers: dict[str, dict[str, Any]] = {}

    def say(self, job: str, status: str, message: str = "") -> None:
        """Set the status of a RayJob's driver: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
        self._drivers[job] = {"status": status, "message": message, "start_time": 1_780_000_000_000}

    def forget(self, job: str) -> None:
        """Answer about a RayJob's driver as a new head does, whose Ray knows no job."""
        self._drivers.pop(job, None)

    def ask(self, submission_id: str) -> dict[str, Any] | None:
        """The driver of a submission; the id is the RayJob's name and five random letters."""
        found = self._drivers.get(submission_id.rpartition("-")[0])
        return None if found is None else {**found, "submission_id": submission_id, "entrypoint": "python"}


@contextmanager
def dashboards() -> Iterator[Dashboards]:
    """Run the proxy while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            driver = found.ask(path.removeprefix(_JOBS)) if path.startswith(_JOBS) else None
            self._answer(404 if driver is None else 200, driver or {})

        def do_POST(self) -> None:
            is_stop = urlsplit(self.path).path.endswith("/stop")
            self._answer(200 if is_stop else 404, {"stopped": is_stop})

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as http.server has it
            """Log nothing."""

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Dashboards(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
