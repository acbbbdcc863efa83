"""Reads the log of a job's driver in a thread, completely even if the connection breaks."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.manifest import Manifest
from platform_charts.jobs.progress import SUBMITTER_CONTAINER
from training.cluster.submitter_log import SubmitterLog

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_SHORTEST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_WAITING = frozenset({400, 404})
"""The container has not started yet (400), or the pod is gone (404)."""


class LogSource(Protocol):
    """Where a log is read from; `JobWatch` is one."""

    @property
    def namespace(self) -> str:
        """Namespace of the pods."""

    def submitter(self) -> Manifest | None:
        """The pod that prints the log, the newest if there were several; None before there is one."""


class DriverLog:
    """The driver's lines in the submitter's log as they come.

    If the job is retried, the next submitter's log follows.
    """

    def __init__(self, api: KubernetesApi, watch: LogSource, *, container: str = SUBMITTER_CONTAINER) -> None:
        self._api = api
        self._watch = watch
        self._container = container
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._has_all = threading.Event()
        self._thread = threading.Thread(target=self._read, name="driver-log", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Read no further than what is there, because nobody follows the job any more."""
        self._is_over.set()

    def take(self) -> Iterator[str]:
        """The lines that have come since the last call."""
        while True:
            try:
                yield self._lines.get_nowait()
            except queue.Empty:
                return

    def finish(self, *, seconds: float) -> Iterator[str]:
        """The remaining lines, once the job is over; waits up to `seconds` for the submitter's last line."""
        self.stop()
        self._has_all.wait(seconds)
        yield from self.take()

    def _read(self) -> None:
        """Read one submitter after the other until the job is over."""
        wait = _SHORTEST_WAIT
        readers: dict[str, _PodReader] = {}
        while True:
            was_over = self._is_over.is_set()
            try:
                pod = self._watch.submitter()
                if pod is not None:
                    self._read_pod(pod, readers.setdefault(pod["metadata"]["uid"], _PodReader()))
                wait = _SHORTEST_WAIT
            except ConnectionLostError:
                wait = min(2 * wait, _LONGEST_WAIT)
            except ApiError as error:
                if error.code not in _WAITING:
                    wait = min(2 * wait, _LONGEST_WAIT)
            if was_over:
                self._has_all.set()
                return
            self._is_over.wait(wait)

    def _read_pod(self, pod: Manifest, reader: _PodReader) -> None:
        cursor = reader.cursor
        cursor.reconnect()
        for line in self._api.log(
            pod["metadata"]["name"],
            namespace=self._watch.namespace,
            container=self._container,
            follow=True,
            timestamps=True,
            since=cursor.since,
        ):
            text = cursor.take(line)
            if text is not None and reader.lines.is_shown(text):
                self._lines.put(text)


class _PodReader:
    """What has been read of one pod's log."""

    def __init__(self) -> None:
        self.cursor = LogCursor()
        self.lines = SubmitterLog()


class LogCursor:
    """Takes the lines of a log with timestamps and passes each on once, however often the reader reconnects.

    The kubelet resumes by whole seconds only, so the lines of the second in which the connection broke come twice; repeats
    are recognized by their text, timestamp included. Order within that second does not matter: standard output
    and standard error are stamped by two threads of the container runtime.
    """

    def __init__(self) -> None:
        self._second = ""
        self._seen: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()

    @property
    def since(self) -> str | None:
        """Value of `sinceTime` for the next connection, RFC 3339; None reads from the start."""
        return f"{self._second}Z" if self._second else None

    def reconnect(self) -> None:
        """The next lines come from a new connection that was opened with `since`."""
        self._repeated = Counter(self._seen)

    def take(self, line: str) -> str | None:
        """The line without its timestamp, or None if it was passed on before.

        Args:
            line: `<RFC 3339 time with nanoseconds> <text>`, without its line break.
        """
        if self._repeated[line]:
            self._repeated[line] -= 1
            return None
        time, _, text = line.partition(" ")
        second = time[: len("2026-01-01T00:00:00")]
        if second > self._second:
            # A line that is stamped in the old second may still come; it is repeated after a reconnection only if the
            # new second's lines are, too late to be mistaken.
            self._second, self._seen = second, Counter()
        self._seen[line] += 1
        return text
