"""The log of a job's driver, read in a thread of its own, from the first line to the last, whatever the network does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from infra.spec.manifest import Manifest
from training.cluster import places
from training.cluster.api import Api
from training.cluster.errors import ApiError, LostConnectionError
from training.cluster.log_cursor import LogCursor
from training.cluster.watch import JobWatch

_SHORTEST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_WAITING = frozenset({400, 404})
"""The container has not started yet (400), or the pod is gone (404)."""


class DriverLog:
    """Lines of the submitter's log as they come.

    The submitter prints what the driver prints. Where a job is begun anew, the next submitter's log follows.
    """

    def __init__(self, api: Api, watch: JobWatch) -> None:
        self._api = api
        self._watch = watch
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._has_all = threading.Event()
        self._thread = threading.Thread(target=self._read, name="driver-log", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self) -> Iterator[str]:
        """The lines that have come since the last call."""
        while True:
            try:
                yield self._lines.get_nowait()
            except queue.Empty:
                return

    def finish(self, *, seconds: float) -> Iterator[str]:
        """The rest, once the job is over; waits so long for the submitter's last line."""
        self._is_over.set()
        self._has_all.wait(seconds)
        yield from self.take()

    def _read(self) -> None:
        """Read one submitter after the other until the job is over."""
        wait = _SHORTEST_WAIT
        cursors: dict[str, LogCursor] = {}
        while True:
            was_over = self._is_over.is_set()
            try:
                pod = self._watch.submitter()
                if pod is not None:
                    self._read_pod(pod, cursors.setdefault(pod["metadata"]["uid"], LogCursor()))
                wait = _SHORTEST_WAIT
            except LostConnectionError:
                wait = min(2 * wait, _LONGEST_WAIT)
            except ApiError as error:
                if error.code not in _WAITING:
                    wait = min(2 * wait, _LONGEST_WAIT)
            if was_over:
                self._has_all.set()
                return
            self._is_over.wait(wait)

    def _read_pod(self, pod: Manifest, cursor: LogCursor) -> None:
        path = places.log(self._watch.namespace, pod["metadata"]["name"])
        query = {"container": places.SUBMITTER_CONTAINER, "follow": "true", "timestamps": "true"}
        if cursor.since is not None:
            query["sinceTime"] = cursor.since
        cursor.reconnect()
        for line in self._api.lines(path, query):
            text = cursor.take(line)
            if text is not None:
                self._lines.put(text)
