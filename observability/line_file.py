"""Files of lines that are appended to, such as JSON Lines.

A full disk or a power failure can leave a torn last line: a beginning without its line end. Appending ends it first, because a line that
is glued to it is lost to every reader. Reading streams, so that memory does not grow with the file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path


class LostFileError(FileNotFoundError):
    """The file was deleted, moved or replaced while it was open; what is appended to it would be lost."""


class LineFile:
    """Appends whole lines to a file that other processes may append to as well. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is created if it does not exist.

        Raises:
            OSError: the file cannot be opened.
        """
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)

    def ends_in_torn_line(self) -> bool:
        """Whether the last line has no line end: its writer could not write all of it."""
        size = os.fstat(self._fd).st_size
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def append(self, lines: bytes) -> None:
        """Append complete lines, on a line of their own; one write unless the disk is full.

        Raises:
            LostFileError: the path no longer leads to the open file.
            OSError: the lines could not be written, or only in part.
        """
        if not self._is_in_place():
            raise LostFileError(errno.ENOENT, "deleted, moved or replaced while it was open", str(self._path))
        rest = memoryview(b"\n" + lines if self.ends_in_torn_line() else lines)
        while rest:  # on a disk that is nearly full, the first call writes a part and the second one fails
            rest = rest[os.write(self._fd, rest) :]

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False

    def end_torn_line(self) -> None:
        """End a torn last line, if there is one."""
        self.append(b"")

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: Path, *, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines after a byte offset, each with its line end and the offset after it; none if there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield line, offset
