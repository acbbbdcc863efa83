"""Reads and writes the files of a code folder, each write verified and atomic."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.spec.errors import PlatformError
from training.code.rules import PARTIAL_SUFFIX, check_path
from training.code.selection import Selection


class ChangedError(PlatformError):
    """A file is no longer what the caller last saw; look again."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The state of a code folder.

    Attributes:
        hashes: sha256 of each file, by path.
        selection: the files, and what is left out.
    """

    hashes: dict[str, str]
    selection: Selection


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file.

    Attributes:
        data: its bytes.
        is_executable: whether its owner may execute it.
    """

    data: bytes
    is_executable: bool

    @property
    def sha256(self) -> str:
        """Hash of its bytes."""
        return hashlib.sha256(self.data).hexdigest()


class Side(Protocol):
    """One of the two folders of a synchronization."""

    def listing(self) -> Listing:
        """Its files."""

    def read(self, path: str) -> Content:
        """A file; raises ChangedError if it is gone."""

    def write(self, path: str, content: Content, *, replaces: str | None) -> None:
        """Write a file whose sha256 is `replaces`, None if there is none; raises ChangedError otherwise."""

    def delete(self, path: str, *, sha256: str) -> None:
        """Delete a file with this sha256; raises ChangedError otherwise."""


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, root: Path, *, select: Callable[[Path], Selection]) -> None:
        """Read nothing yet.

        Args:
            root: the folder.
            select: its files; raises PlatformError.
        """
        self._root = root.resolve()
        self._select = select
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def listing(self) -> Listing:
        """The files with their hashes; only files whose size or times changed are read."""
        selection = self._select(self._root)
        hashes = {}
        for path in selection.files:
            with suppress(FileNotFoundError):  # deleted since it was listed
                hashes[path] = self._hash(path)
        self._known = {path: self._known[path] for path in hashes}
        return Listing(hashes=hashes, selection=selection)

    def read(self, path: str) -> Content:
        """A file.

        Raises:
            ChangedError: it does not exist.
        """
        file = self._file(path)
        try:
            with file.open("rb") as opened:
                return Content(data=opened.read(), is_executable=bool(os.fstat(opened.fileno()).st_mode & 0o100))
        except FileNotFoundError as error:
            raise ChangedError(f"{path} was deleted") from error
        except OSError as error:
            raise PlatformError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, path: str, content: Content, *, replaces: str | None) -> None:
        """Write a file, completely or not at all.

        Raises:
            ChangedError: the file in its place has another sha256 than `replaces`.
            PlatformError: it cannot be written.
        """
        file = self._file(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, suffix=PARTIAL_SUFFIX)
            try:
                with os.fdopen(handle, "wb") as opened:
                    opened.write(content.data)
                    os.fchmod(handle, 0o755 if content.is_executable else 0o644)
                self._require(path, replaces)
                Path(name).replace(file)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise PlatformError(f"{path} cannot be written: {error.strerror}") from error

    def delete(self, path: str, *, sha256: str) -> None:
        """Delete a file, and the folders that become empty.

        Raises:
            ChangedError: it has another sha256.
            PlatformError: it cannot be deleted.
        """
        file = self._file(path)
        self._require(path, sha256)
        try:
            file.unlink()
        except OSError as error:
            raise PlatformError(f"{path} cannot be deleted: {error.strerror}") from error
        with suppress(OSError):  # not empty
            for folder in file.parents:
                if folder == self._root:
                    break
                folder.rmdir()

    def _file(self, path: str) -> Path:
        """The place of a path; a link on the way must not lead out of the folder."""
        check_path(path)
        file = self._root / path
        if not file.parent.resolve().is_relative_to(self._root) or file.is_symlink():
            raise PlatformError(f"{path} is behind a link, and is not read or written")
        return file

    def _require(self, path: str, sha256: str | None) -> None:
        try:
            found = self._hash(path)
        except FileNotFoundError:
            found = None
        except OSError as error:
            raise PlatformError(f"{path} cannot be read: {error.strerror}") from error
        if found != sha256:
            raise ChangedError(f"{path} has changed meanwhile")

    def _hash(self, path: str) -> str:
        file = self._root / path
        with file.open("rb") as opened:
            stat = os.fstat(opened.fileno())
            state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
            known = self._known.get(path)
            if known is None or known[0] != state:
                known = state, hashlib.file_digest(opened, "sha256").hexdigest()
                self._known[path] = known
        return known[1]
