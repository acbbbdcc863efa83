"""Texts of a record, cut to a number of bytes; pure functions."""

from __future__ import annotations

import re

LONGEST_NAME = 253
LONGEST_MESSAGE = 2048
"""Bytes of a container's message and of the job's: the kubelet keeps 4096 of one, and a record has one for each pod."""

LONGEST_REASON = 400

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Characters that JSON would write as six: a record's size must follow from that of its texts."""


def head(value: object, longest: int = LONGEST_REASON) -> str:
    """The beginning of a text, of at most `longest` bytes in UTF-8; empty for None."""
    text = _printable(value)
    data = text.encode()
    return text if len(data) <= longest else data[: longest - 3].decode(errors="ignore") + "…"


def tail(value: object, longest: int = LONGEST_MESSAGE) -> str:
    """The end of a text, of at most `longest` bytes in UTF-8; empty for None."""
    text = _printable(value)
    data = text.encode()
    return text if len(data) <= longest else "…" + data[-(longest - 3) :].decode(errors="ignore")


def both(value: object, longest: int = LONGEST_MESSAGE) -> str:
    """The beginning and the end of a text, of at most `longest` bytes in UTF-8: one says what failed, the other how."""
    text = _printable(value)
    if len(text.encode()) <= longest:
        return text
    first = head(text, longest // 4)
    return first + tail(text, longest - len(first.encode()))


def _printable(value: object) -> str:
    return "" if value is None else _CONTROL.sub(" ", str(value))
