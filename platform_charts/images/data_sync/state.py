"""What earlier runs have copied, kept beside the datasets, because everything in a dataset's folder belongs to the dataset.

ROOT/.data-sync/DESTINATION/lock              held while a run writes the destination
ROOT/.data-sync/DESTINATION/manifest.jsonl    every file of the last complete run, one a line
ROOT/.data-sync/DESTINATION/journal.jsonl     files, and parts of files, since then
ROOT/.data-sync/DESTINATION/parts/            files that are not complete
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from .errors import RefusedSyncError
from .source import RemoteObject

FOLDER = ".data-sync"


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file that was copied.

    Attributes:
        path: relative path.
        size: in bytes.
        etag: entity tag of its object.
        checksums: checksums that it was verified by, hexadecimal by name; empty if it could not be verified.
        mtime_ns: modification time, to notice local changes.
    """

    path: str
    size: int
    etag: str
    checksums: Mapping[str, str]
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """A part of an object that is complete in its file under `parts/`.

    Attributes:
        file: name of that file, which stands for path and entity tag.
        number: of the part, from 1.
        start: offset in bytes.
        size: in bytes.
        digests: checksums of the part, hexadecimal by name.
    """

    file: str
    number: int
    start: int
    size: int
    digests: Mapping[str, str]


class State:
    """The state of one destination. `record` is thread-safe.

    Attributes:
        files: record by path.
        parts: record by file and number.
        is_complete: the last run copied everything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        self.files: dict[str, FileRecord] = {}
        self.parts: dict[tuple[str, int], PartRecord] = {}
        unfinished = list(_lines(folder / "journal.jsonl"))
        self.is_complete = (folder / "manifest.jsonl").exists() and not unfinished
        for line in (*_lines(folder / "manifest.jsonl"), *unfinished):
            self._take(PartRecord(**line) if "number" in line else FileRecord(**line))
        self._journal = (folder / "journal.jsonl").open("a", encoding="utf-8")
        if self._journal.tell():
            self._journal.write("\n")  # ends a line that a killed run began

    def partial_file(self, one: RemoteObject) -> Path:
        """Where an object is written until it is complete: on the destination's file system, so that it can be renamed."""
        name = hashlib.sha256(f"{one.path}\0{one.etag}\0{one.size}".encode()).hexdigest()[:40]
        return self._folder / "parts" / name

    def record(self, record: FileRecord | PartRecord) -> None:
        """Remember what is complete on disk."""
        with self._lock:
            self._take(record)
            self._journal.write(json.dumps(asdict(record)) + "\n")
            self._journal.flush()

    def forget(self, path: str) -> None:
        """Forget a file, which was deleted."""
        del self.files[path]

    def commit(self) -> None:
        """Write the manifest, after everything else."""
        new = self._folder / "manifest.new"
        with new.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(self.files[path])) + "\n" for path in sorted(self.files))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._folder / "manifest.jsonl")
        self._journal.close()
        (self._folder / "journal.jsonl").unlink()
        shutil.rmtree(self._folder / "parts")

    def _take(self, record: FileRecord | PartRecord) -> None:
        if isinstance(record, PartRecord):
            self.parts[record.file, record.number] = record
        else:
            self.files[record.path] = record


@contextmanager
def locked_state(root: Path, destination: str) -> Iterator[State]:
    """The state of a destination, which no other run writes meanwhile, nor a folder above or below it.

    The locks are the kernel's, on NFS the server's: they end with the process that holds them.

    Raises:
        RefusedSyncError: another run does.
    """
    above = [str(one) for one in PurePosixPath(destination).parents][:-1]
    with ExitStack() as held:
        for name, kind in (*((one, fcntl.LOCK_SH) for one in above), (destination, fcntl.LOCK_EX)):
            folder = root / FOLDER / quote(name, safe="")
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / "lock").open("a+"))
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RefusedSyncError(
                    f"another data-sync is writing datasets/{destination}, or a folder above or below it: wait for it"
                ) from error
        yield State(folder)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a file; none if there is no file."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # a line that a killed run began
