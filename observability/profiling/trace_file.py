"""Reads a trace of Kineto as a stream: traces of large models take hundreds of megabytes, and a killed rank leaves half of one."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from observability.profiling.window import ProfileError

_CHUNK: Final = 1 << 20
_LONGEST_EVENT: Final = 16 << 20
"""Characters after which a record that does not end is taken for damage."""

_EVENTS: Final = '"traceEvents": ['


class TraceEvent(NamedTuple):
    """Something that took time.

    Attributes:
        category: Kineto's, e.g. `cpu_op`, `kernel`, `gpu_memcpy`, `cuda_runtime`, `user_annotation`.
        thread: of a CPU, or stream of a GPU.
        start, end: microseconds since the trace's base.
    """

    name: str
    category: str
    thread: str
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class TraceHeader:
    """What a trace says of itself: the Unix time in microseconds that its events count from."""

    base: float


class TraceFile:
    """An open trace: its header, then its events."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[TraceHeader, Iterator[TraceEvent]]:
        """The header, and the events in the order of the file.

        Raises:
            ProfileError: the file is missing, truncated or not a trace; while the events are read, too.
        """
        stream = self._stream()
        text = ""
        while _EVENTS not in text:
            text += self._more(stream)
        head, _, rest = text.partition(_EVENTS)
        try:
            header = json.loads(f"{head}{_EVENTS}]}}")
            base = float(header.get("baseTimeNanoseconds", 0)) / 1e3
        except (ValueError, AttributeError) as error:
            raise ProfileError(f"{self._path} is not a trace of the PyTorch profiler: {error}") from None
        return TraceHeader(base=base), self._events(stream, rest)

    def _events(self, stream: TextIO, text: str) -> Iterator[TraceEvent]:
        decode = json.JSONDecoder().raw_decode
        at = 0
        while True:
            while at < len(text) and text[at] in ", \n\r\t":
                at += 1
            if at < len(text) and text[at] == "]":
                return
            try:
                record, at = decode(text, at)
            except json.JSONDecodeError as error:
                if len(text) - at > _LONGEST_EVENT:
                    raise ProfileError(f"{self._path} is damaged: {error}") from None
                text, at = text[at:] + self._more(stream), 0
                continue
            event = _event(record)
            if event is not None:
                yield event

    def _stream(self) -> TextIO:
        try:
            return gzip.open(self._path, "rt", encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise ProfileError(f"{self._path} does not exist") from None

    def _more(self, stream: TextIO) -> str:
        """The next part of the file."""
        try:
            chunk = stream.read(_CHUNK)
        except (EOFError, OSError, zlib.error) as error:
            raise ProfileError(f"{self._path} is truncated or damaged: {error}") from None
        if not chunk:
            raise ProfileError(f"{self._path} is truncated: its events do not end")
        return chunk


def _event(record: dict[str, Any]) -> TraceEvent | None:
    """The event of a record; None of one without a duration, such as a thread's name."""
    if record.get("ph") != "X":
        return None
    start = float(record["ts"])
    return TraceEvent(
        name=str(record.get("name", "")),
        category=str(record.get("cat", "")),
        thread=str(record.get("tid", "")),
        start=start,
        end=start + float(record.get("dur", 0)),
    )
