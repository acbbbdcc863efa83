"""Where the reader of a pod's log is, so that after a lost connection it goes on with the very next line."""

from __future__ import annotations

from collections import Counter


class LogCursor:
    """Takes the lines of a log with timestamps and passes each on once, however often the connection begins anew.

    The kubelet resumes by whole seconds only, so the lines of the second in which the connection broke come twice; those
    seen before are known by their text, timestamp included. Order within that second does not matter: standard output
    and standard error are stamped by two threads of the container runtime.
    """

    def __init__(self) -> None:
        self._second = ""
        self._seen: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()

    @property
    def since(self) -> str | None:
        """Value of `sinceTime` for the next connection, RFC 3339; None reads from the beginning."""
        return f"{self._second}Z" if self._second else None

    def reconnect(self) -> None:
        """The next lines come from a new connection that was opened with `since`."""
        self._repeated = Counter(self._seen)

    def take(self, line: str) -> str | None:
        """The line without its timestamp, or None for one that was passed on before.

        Args:
            line: `<RFC 3339 time with nanoseconds> <text>`, without its end.
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
