"""One run: list, compare with what is there, refuse what cannot be copied, copy, delete, and write the manifest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .download import Download
from .errors import RefusedSyncError, SyncError
from .progress import Progress, amount
from .source import RemoteObject, folders_of, list_objects, refuse
from .state import FileRecord, State

_SHOWN = 10
_BLOCK = 512
"""Bytes of a block in `st_blocks` (stat(3type))."""

_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """What to copy, and how.

    Attributes:
        source: as the user wrote it, for messages.
        bucket: of the source; empty for a folder.
        prefix: of the source's keys.
        root: folder of all datasets.
        destination: relative path of the folder to write.
        workers: number of threads.
        deletes: delete files that earlier runs copied and that the source no longer has.
        accepts_unverified: objects without a checksum that can be computed are no failure.
        reads_back: verify files by reading them again, because their source has no checksums.
        limit: bytes that the root may hold; None is what its disk has free.
        reuses: a complete copy is kept as it is, whatever the source holds now.
    """

    source: str
    bucket: str
    prefix: str
    root: Path
    destination: str
    workers: int
    deletes: bool
    accepts_unverified: bool
    reads_back: bool = False
    limit: int | None = None
    reuses: bool = False

    @property
    def folder(self) -> Path:
        """The folder to write."""
        return self.root / self.destination


class Sync:
    """A run.

    Args:
        client: S3.
        options: what to copy.
        state: what earlier runs have copied.
    """

    def __init__(self, client: Any, options: SyncOptions, state: State) -> None:  # noqa: ANN401
        self._client, self._options, self._state = client, options, state
        self._download: Download | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the run soon; the next one continues it."""
        self._is_stopped = True
        if self._download is not None:
            self._download.stop()

    def run(self) -> None:
        """Copy.

        Raises:
            SyncError: the source cannot be copied, or something was not copied or verified.
            OSError: the file system fails.
        """
        options, state = self._options, self._state
        if options.reuses and state.is_complete and all(map(self._is_unchanged, state.files.values())):
            print(f"{len(state.files)} files are there and complete", flush=True)
            return
        objects = list_objects(self._client, options.bucket, options.prefix, source=options.source)
        refuse("would overwrite what is no file, or lie below a file or a link", self._obstacles(objects))
        to_copy = [one for one in objects if not self._is_there(one)]
        size = sum(one.size for one in to_copy)
        self._check_space(to_copy)
        same = len(objects) - len(to_copy)
        print(f"{len(objects)} objects; {same} are there, {len(to_copy)} to copy, {amount(size)}", flush=True)
        progress = Progress(files=len(to_copy), size=size)
        download = Download(
            self._client,
            options.bucket,
            options.folder,
            state=state,
            progress=progress,
            reads_back=options.reads_back,
        )
        self._download = download
        if self._is_stopped:
            download.stop()
        download.run(
            to_copy,
            workers=options.workers,
            every=lambda: print(progress.line(), flush=True),
            seconds=_SECONDS_BETWEEN_LINES,
        )
        if download.failures:
            lines = [f"{key}: {why}" for key, why in download.failures.items()]
            raise SyncError(f"{len(lines)} objects were not copied:{_listed(lines)}")
        if options.deletes:
            self._delete_others(objects)
        state.commit()
        print(f"done: {progress.line()}", flush=True)
        self._report_unverified(objects)

    def _is_there(self, one: RemoteObject) -> bool:
        """Whether an earlier run copied this very object, and nobody changed the file since."""
        known = self._state.files.get(one.path)
        if known is None or (known.etag, known.size) != (one.etag, one.size):
            return False
        return self._is_unchanged(known)

    def _is_unchanged(self, known: FileRecord) -> bool:
        """Whether a file is as an earlier run left it, by size and modification time."""
        try:
            found = (self._options.folder / known.path).lstat()
        except FileNotFoundError:
            return False
        return (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)

    def _obstacles(self, objects: Sequence[RemoteObject]) -> Iterator[str]:
        folder = self._options.folder
        above = [self._options.root / one for one in folders_of([f"{self._options.destination}/file"])]
        for path in sorted((*above, *(folder / one for one in folders_of(one.path for one in objects)))):
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                yield f"{path} is not a folder"
        for one in objects:
            path = folder / one.path
            if path.is_symlink() or path.is_dir():
                yield f"{path} is not a file"

    def _check_space(self, to_copy: Sequence[RemoteObject]) -> None:
        """Refuse a copy that would fill the file system; complete parts of an earlier run need no more space."""
        files = {self._state.partial_file(one).name for one in to_copy}
        there = sum(part.size for (file, _), part in self._state.parts.items() if file in files)
        needed = sum(one.size for one in to_copy) - there
        free, limit, place = shutil.disk_usage(self._options.root).free, self._options.limit, "the file system"
        if limit is not None and (room := max(0, limit - _used(self._options.root))) < free:
            free, place = room, f"of its limit of {amount(limit)} {self._options.root}"
        if needed > free:
            raise RefusedSyncError(
                f"the copy needs {amount(needed)} ({needed} bytes), {place} has {amount(free)} ({free} bytes) free"
            )

    def _delete_others(self, objects: Sequence[RemoteObject]) -> None:
        """Delete files that earlier runs copied and the source no longer has, and the folders that become empty."""
        root = self._options.folder
        paths = sorted(set(self._state.files) - {one.path for one in objects})
        for path in paths:
            (root / path).unlink(missing_ok=True)
            self._state.forget(path)
        for folder in sorted(folders_of(paths), reverse=True):
            if (root / folder).is_dir() and not any((root / folder).iterdir()):
                (root / folder).rmdir()
        print(f"{len(paths)} files deleted that the source no longer has", flush=True)

    def _report_unverified(self, objects: Sequence[RemoteObject]) -> None:
        unverified = [one.path for one in objects if not self._state.files[one.path].checksums]
        if not unverified:
            return
        text = (
            f"the content of {len(unverified)} files could not be verified, only their size: their objects have no checksum "
            f"that this program computes (MD5, SHA-256, SHA-1, CRC-32):{_listed(unverified)}"
        )
        if not self._options.accepts_unverified:
            raise SyncError(
                f"{text}\n  remedy: upload them with a SHA-256 checksum, or accept them: --accept-unverified"
            )
        print(f"warning: {text}", flush=True)


def _used(root: Path) -> int:
    """Bytes that a folder occupies."""
    return sum(file.lstat().st_blocks * _BLOCK for file in root.rglob("*") if not file.is_dir())


def _listed(lines: Sequence[str]) -> str:
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "".join(f"\n  {line}" for line in sorted(lines)[:_SHOWN]) + more
