"""Standard output whose encoding lacks our characters, or whose reader has left; files that a command writes."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Final, TextIO

from infra.spec.errors import SettingsError

_ERRORS: Final = "rtp-plain"
_PLAIN: Final = {
    "…": "...",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "✓": "+",
    "█": "#",
    "■": "#",
}
_FIRST_BRAILLE, _LAST_BRAILLE = "\u2800", "\u28ff"


def use_plain_characters() -> None:
    """Have the standard streams replace what their encoding lacks, `…` by `...`, instead of raising UnicodeEncodeError."""
    codecs.register_error(_ERRORS, _in_plain_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def discard(stream: TextIO) -> None:
    """Send what else is written to a stream, also by Python's flush at exit, to nowhere: its reader has left."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """A block that writes a file which the user has named.

    Raises:
        SettingsError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{file}: cannot be written: {error.strerror}", remedy="name a file in a folder that exists and is writable"
        ) from error


@contextmanager
def outliving_the_reader() -> Iterator[None]:
    """Within the block, standard output survives its reader: a closed pipe, as of `| head -1`, or a closed terminal."""
    with _steady(sys.stdout, redirect_stdout):
        yield


@contextmanager
def outliving_the_terminal() -> Iterator[None]:
    """Within the block, standard output and standard error survive their reader."""
    with _steady(sys.stdout, redirect_stdout), _steady(sys.stderr, redirect_stderr):
        yield


@contextmanager
def _steady(stream: TextIO, redirect: Callable[[io.TextIOWrapper], AbstractContextManager[object]]) -> Iterator[None]:
    """Within the block, a stream discards what it cannot write."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    stream.flush()
    steady = _SteadyStream(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    try:
        with redirect(steady):
            yield
    finally:
        steady.flush()
        steady.detach()


class _SteadyStream(io.TextIOWrapper):
    """A text stream that discards what it cannot write."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            discard(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            discard(self)


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    """The error handler of `codecs`: replaces the characters that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(map(_plain, lost)), error.end


def _plain(character: str) -> str:
    if _FIRST_BRAILLE <= character <= _LAST_BRAILLE:  # a curve: dots or none
        return " " if character == _FIRST_BRAILLE else "*"
    return _PLAIN.get(character, "?")
