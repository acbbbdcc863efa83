"""A folder as the source of a copy, with the calls of the S3 client that a copy makes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ChangedError, RefusedSyncError


class FolderClient:
    """Reads the files below a folder like the objects of a bucket; links are followed.

    A file's entity tag is its size and modification time, so a file that changes during the copy is noticed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get_paginator(self, _operation: str) -> FolderClient:
        """The paginator of ListObjectsV2."""
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[Mapping[str, Any]]:  # noqa: N803 - the names of the S3 API
        """One page with all files.

        Raises:
            RefusedSyncError: something is neither a file nor a folder, or a link leads to a folder above it.
            OSError: a folder cannot be read, or a link leads nowhere.
        """
        del Bucket, Prefix
        yield {"Contents": self.entries()}

    def entries(self) -> list[dict[str, Any]]:
        """Key, size and entity tag of every file; see `paginate`."""
        return list(self._walk(self._folder, above=()))

    def get_object(self, *, Bucket: str, Key: str, IfMatch: str, **_options: str) -> dict[str, Any]:  # noqa: N803
        """Open a file.

        Raises:
            ChangedError: it is gone, or not the one that was listed.
        """
        del Bucket
        try:
            file = (self._folder / Key).open("rb")
        except FileNotFoundError as error:
            raise ChangedError(Key) from error
        if _tag(os.fstat(file.fileno())) != IfMatch:
            file.close()
            raise ChangedError(Key)
        return {"Body": _Body(file, Key, IfMatch)}

    def _walk(self, folder: Path, *, above: tuple[tuple[int, int], ...]) -> Iterator[dict[str, Any]]:
        found = folder.stat()
        identity = (found.st_dev, found.st_ino)
        if identity in above:
            raise RefusedSyncError(f"{folder} leads back to a folder above it: remove the link")
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            status = entry.stat()
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(Path(entry.path), above=(*above, identity))
            elif stat.S_ISREG(status.st_mode):
                key = Path(entry.path).relative_to(self._folder).as_posix()
                yield {"Key": key, "Size": status.st_size, "ETag": _tag(status)}
            else:
                raise RefusedSyncError(f"{entry.path} is neither a file nor a folder: remove it")


class _Body:
    """The content of a file, as botocore's StreamingBody."""

    def __init__(self, file: BinaryIO, key: str, tag: str) -> None:
        self._file, self._key, self._tag = file, key, tag

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        """The content; raises ChangedError at its end if the file changed meanwhile."""
        while chunk := self._file.read(size):
            yield chunk
        if _tag(os.fstat(self._file.fileno())) != self._tag:
            raise ChangedError(self._key)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _tag(status: os.stat_result) -> str:
    """In quotes, like every entity tag."""
    return f'"{status.st_size:x}.{status.st_mtime_ns:x}"'
