"""Event logs: JSON Lines files of typed events, appended to by several processes and read as they grow.

Events are appended by one `write` call on a file opened with `O_APPEND`, so several processes of one machine can share a log. Readers wait
for the rest of an incomplete last line, and skip one that was cut off by a full disk: the next writer ends it and logs a notice.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from observability.line_file import LineFile, read_lines
from observability.uptime import BOOT, uptime

NOW: Final = math.nan
"""As the time of an event: when it is made."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of all events.

    Attributes:
        time: Unix time.
        uptime: seconds since the machine started, which nobody sets as they do the wall clock; None in older logs, where it is not known,
            and for an event that is given its time alone.
        boot: identifies that start; empty without uptime.
    """

    kind: ClassVar[str] = ""
    time: float = NOW
    uptime: float | None = None
    boot: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.time):
            for name, value in (("time", time.time()), ("uptime", uptime()), ("boot", BOOT)):
                object.__setattr__(self, name, value)  # frozen


E = TypeVar("E", bound=Event)
_to_json = json.JSONEncoder(separators=(",", ":")).encode


def encode(event: Event) -> str:
    """Encode an event as one line of JSON without a newline. NaN and infinity become `NaN` and `Infinity`, Python's extension of JSON."""
    values = {"kind": event.kind, **vars(event)}
    if event.uptime is None:
        del values["uptime"], values["boot"]
    return _to_json(values)


class Decoder:
    """Decodes the events of one kind of log."""

    def __init__(self, *classes: type[Event]) -> None:
        self.classes = classes
        """The events, in the order in which they are documented."""
        self._classes = {cls.kind: cls for cls in classes}
        self._fields = {cls.kind: frozenset(one.name for one in fields(cls)) for cls in classes}

    def __call__(self, line: str) -> Event | None:
        """Decode a line. Returns None for an unknown kind and drops unknown fields, both of which newer versions may write.

        Raises:
            ValueError: the line is not a JSON object or lacks a field.
        """
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError(f"{line[:100]!r} is not a JSON object")
        cls = self._classes.get(record.pop("kind", ""))
        if cls is None:
            return None
        known = self._fields[cls.kind]
        try:
            return cls(**{key: value for key, value in record.items() if key in known})
        except TypeError as error:
            raise ValueError(f"event of kind {cls.kind}: {error}") from error


class LogWriter:
    """Appends events to a log. Not thread-safe."""

    def __init__(self, path: Path, *, on_torn_line: Callable[[str], Event]) -> None:
        """Open the log, and make its folder.

        Args:
            path: the log.
            on_torn_line: makes the event that says that the last line was cut off, from a message.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = LineFile(path)
        self._torn = (
            f"the last line of {path.name} was incomplete and is skipped: the disk was full, or the machine stopped"
        )
        self._on_torn_line = on_torn_line

    def write(self, *events: Event) -> None:
        """Append events in one system call.

        Raises:
            OSError: the log cannot be written; of the last event a part may be in it.
        """
        if self._file.ends_in_torn_line():
            events = (self._on_torn_line(self._torn), *events)
        self._file.append("".join(f"{encode(event)}\n" for event in events).encode())

    def close(self) -> None:
        """Close the log; further calls do nothing."""
        self._file.close()


class LogReader:
    """Follows a log as it grows, from a byte offset."""

    def __init__(self, path: Path, decode: Decoder, *, offset: int = 0) -> None:
        self._path = path
        self._decode = decode
        self.offset = offset
        """Bytes read so far; a new reader with this offset continues here."""

    def read_new(self) -> Iterator[Event]:
        """Yield the events of all complete lines after the offset; skip lines that are not events."""
        for line, end in read_lines(self._path, offset=self.offset):
            self.offset = end
            try:
                event = self._decode(line.decode())
            except ValueError:
                continue
            if event is not None:
                yield event


def select(events: Iterable[Event], kind: type[E]) -> list[E]:
    """The events of class `kind`."""
    return [event for event in events if isinstance(event, kind)]
