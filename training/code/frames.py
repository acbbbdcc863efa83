"""Messages over a pipe: one line of JSON with the number of bytes that follow it, then these bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol


class Reader(Protocol):
    """Where messages come from."""

    def line(self) -> bytes:
        """A line with its end; without it, or empty, the other side has gone."""

    def exactly(self, count: int) -> bytes:
        """That many bytes; fewer if the other side has gone."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A request or an answer.

    Attributes:
        fields: plain data.
        data: bytes of a file.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""

    def encode(self) -> bytes:
        """As it is sent."""
        return json.dumps({**self.fields, "size": len(self.data)}).encode() + b"\n" + self.data


def receive(reader: Reader) -> Message | None:
    """The next message; None if the other side has gone between two messages.

    Raises:
        ConnectionError: the other side has gone within a message, or sends something else.
    """
    line = reader.line()
    if not line:
        return None
    try:
        fields = json.loads(line)
        size = int(fields.pop("size"))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConnectionError(f"not a message: {line[:100]!r}") from error
    data = reader.exactly(size)
    if len(data) < size:
        raise ConnectionError("the connection ended within a message")
    return Message(fields=fields, data=data)
