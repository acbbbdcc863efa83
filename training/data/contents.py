"""Hashes of files' contents (`data.fingerprint=contents`), each computed once as long as its file stays the same.

A hash is kept by the file's size, modification time in nanoseconds and inode, in the user's cache, one archive for each folder of a
dataset. One process of a machine computes at a time; the others wait and find the hashes there.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.config.schema import DataSettings

logger = logging.getLogger(__name__)

_THREADS = 16
"""Hashing releases the interpreter's lock, and a network file system waits for most of the time."""

_PROGRESS_SECONDS = 30.0


def content_arrays(settings: DataSettings, names: Sequence[bytes]) -> dict[str, NDArray[np.uint8]]:
    """What `data.fingerprint` adds to the arrays of a fingerprint: nothing, or the sha256 of each file, shape (n, 32).

    Args:
        settings: of the dataset.
        names: paths of its files below its folder.

    Raises:
        OSError: a file cannot be read.
    """
    if settings.fingerprint == "files":
        return {}
    return {"contents": hashes_of(settings.folder, names, cache=_cache())}


def _cache() -> Path:
    """Where hashes are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "ray-train-platform", "contents")


def hashes_of(folder: Path, names: Sequence[bytes], *, cache: Path) -> NDArray[np.uint8]:
    """The sha256 of each file below a folder, shape (n, 32); those of unchanged files are taken from the cache.

    Raises:
        OSError: a file cannot be read.
    """
    root = os.fsencode(folder.resolve())
    kept = cache / f"{hashlib.sha256(root).hexdigest()[:16]}.npz"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(kept.with_suffix(".lock")):
        paths = [os.path.join(root, name) for name in names]  # noqa: PTH118 - bytes
        now = _Known(
            names=np.array(names, dtype=np.bytes_),
            stamps=np.array([_stamp(path) for path in paths], dtype=np.int64).reshape(-1, len(_STAMP)),
            digests=np.empty((len(names), 32), dtype=np.uint8),
        )
        known = _Known.load(kept)
        if known is not None and known.is_of(now):
            return known.digests
        before = {} if known is None else known.by_key()
        missing = []
        for row, key in enumerate(now.keys()):
            if (digest := before.get(key)) is None:
                missing.append(row)
            else:
                now.digests[row] = np.frombuffer(digest, dtype=np.uint8)
        for row, digest in zip(missing, _computed([paths[row] for row in missing]), strict=True):
            now.digests[row] = np.frombuffer(digest, dtype=np.uint8)
        now.save(kept)
    return now.digests


_STAMP = ("st_size", "st_mtime_ns", "st_ino")
"""What stays while a file stays the same."""


def _stamp(path: bytes) -> list[int]:
    status = os.stat(path)  # noqa: PTH116 - bytes
    return [getattr(status, name) for name in _STAMP]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """The hashes of a folder's files.

    Attributes:
        names: paths of the files, shape (n,).
        stamps: their `_STAMP` when they were read, shape (n, 3).
        digests: shape (n, 32).
    """

    names: NDArray[np.bytes_]
    stamps: NDArray[np.int64]
    digests: NDArray[np.uint8]

    @classmethod
    def load(cls, file: Path) -> _Known | None:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return cls(names=arrays["names"], stamps=arrays["stamps"], digests=arrays["digests"])
        except Exception:  # noqa: BLE001 - whatever a damaged archive raises: its hashes are computed again
            return None

    def is_of(self, now: _Known) -> bool:
        """Whether they are of the same files, unchanged."""
        return np.array_equal(self.names, now.names) and np.array_equal(self.stamps, now.stamps)

    def keys(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Name and stamp of each file."""
        return zip(self.names.tolist(), map(tuple, self.stamps.tolist()), strict=True)

    def by_key(self) -> dict[tuple[bytes, tuple[int, ...]], bytes]:
        return dict(zip(self.keys(), map(bytes, self.digests), strict=True))

    def save(self, file: Path) -> None:
        partial = file.with_name(f".{secrets.token_hex(4)}.npz")
        np.savez(partial, names=self.names, stamps=self.stamps, digests=self.digests)
        partial.replace(file)


def _computed(paths: Sequence[bytes]) -> Iterator[bytes]:
    """The hashes of files, in their order, with a line in the log twice a minute."""
    said = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as threads:
        for done, digest in enumerate(threads.map(_sha256, paths)):
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                logger.info("data.fingerprint=contents: %d of %d files are read", done, len(paths))
            yield digest


def _sha256(path: bytes) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - bytes
        return hashlib.file_digest(file, "sha256").digest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
