"""Where checkpoints are stored: a narrow protocol, and local disks or mounted file systems, e.g. EFS."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol


class Storage(Protocol):
    """Flat folders of files. Every method may raise OSError."""

    @property
    def location(self) -> str:
        """The location, for messages."""
        ...

    def folders(self) -> list[str]:
        """Names of all folders, sorted; none if the location does not exist yet."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file of a folder by name; empty if there is no such folder."""
        ...

    def local(self, folder: str) -> Path:
        """A path on this machine with the folder's files."""
        ...

    def writing(self, folder: str, name: str) -> AbstractContextManager[Path]:
        """A path to write a file at; once the block ends without an exception it is durable under `name`."""
        ...

    def remove(self, folder: str, *, first: str) -> None:
        """Remove a folder and its files, the file `first` durably before any other."""
        ...

    def free_bytes(self) -> int:
        """Free space in bytes."""
        ...


class LocalStorage:
    """Storage in a directory of a file system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def location(self) -> str:
        """The directory."""
        return str(self._directory)

    def folders(self) -> list[str]:
        """Names of all folders, sorted; none if the directory does not exist yet."""
        try:
            return sorted(path.name for path in self._directory.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file of a folder by name; empty if there is no such folder."""
        try:
            return {path.name: path.stat().st_size for path in self.local(folder).iterdir() if path.is_file()}
        except FileNotFoundError:
            # Another process may be removing the folder while this one lists it.
            return {}

    def local(self, folder: str) -> Path:
        """The folder itself."""
        return self._directory / folder

    @contextmanager
    def writing(self, folder: str, name: str) -> Iterator[Path]:
        """A temporary path in the folder; on leaving, the file is synced and renamed, and the rename is synced."""
        target = self._directory / folder
        if not target.is_dir():
            target.mkdir(parents=True, exist_ok=True)  # several ranks may write the first file
            _sync(self._directory)
        temporary = target / f"{name}.tmp"
        yield temporary
        # safetensors makes its files readable by their owner only; others must be able to read a checkpoint.
        temporary.chmod(0o644)
        _sync(temporary)
        temporary.replace(target / name)
        _sync(target)

    def remove(self, folder: str, *, first: str) -> None:
        """Remove a folder and its files, the file `first` durably before any other."""
        target = self._directory / folder
        if target.is_dir():
            if not (target / first).is_dir():
                (target / first).unlink(missing_ok=True)
            _sync(target)
            shutil.rmtree(target)

    def free_bytes(self) -> int:
        """Free space of the file system for an unprivileged process."""
        return shutil.disk_usage(self._directory).free


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
