"""The dashboards of all Ray clusters, which the KubeRay operator queries, as an HTTP proxy on loopback.

A fake, because fake nodes run no containers. It answers both requests of ray-operator/controllers/ray/utils/dashboardclient
by the name of the RayJob, with 404 for an unknown job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.engines.servers import Handler, http_server

_JOBS = "/api/jobs/"


class Dashboards:
    """The drivers of all jobs."""

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

    class DashboardHandler(Handler):
        def do_GET(self) -> None:  # noqa: N802
            path = urlsplit(self.path).path
            driver = found.ask(path.removeprefix(_JOBS)) if path.startswith(_JOBS) else None
            self.answer(404 if driver is None else 200, json.dumps(driver or {}).encode())

        def do_POST(self) -> None:  # noqa: N802
            is_stop = urlsplit(self.path).path.endswith("/stop")
            self.answer(200 if is_stop else 404, json.dumps({"stopped": is_stop}).encode())

    with http_server(DashboardHandler) as url:
        found = Dashboards(url)
        yield found
