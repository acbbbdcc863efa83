"""The index of a tar shard: where the image of each sample is, and its class.

A tar file has no table of contents, so its headers are read once, one after the other. The result is kept beside the shard, for all
processes and later runs; where that folder cannot be written, every process reads the headers for itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
import secrets
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from training.data.files import IMAGE_SUFFIXES

_FORMAT = 3
"""Version of the index. One of another version is made anew."""

_IMAGES = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)


class ShardError(Exception):
    """A shard is damaged, or has samples that cannot be used; the message does not name the shard."""


@dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """The samples of a shard, in its order.

    Attributes:
        keys: name of each sample, which is that of its members without what follows the first dot, shape (n,).
        offsets: where the bytes of its image begin, shape (n,).
        sizes: how many they are, shape (n,).
        labels: its class: int64, or text if one is not a whole number in its plain form, as "01" is not; shape (n,).
    """

    keys: NDArray[np.bytes_]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64] | NDArray[np.str_]

    def sha256(self) -> bytes:
        """Hash of the names, places, sizes and classes of all samples."""
        digest = hashlib.sha256()
        for array in (self.keys, self.offsets, self.sizes, self.labels):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if len(array) else b"")
        return digest.digest()


def read_index(shard: Path, *, target: str) -> ShardIndex:
    """The index that is kept beside a shard, or a new one if there is none or the shard has changed since.

    Args:
        shard: the tar file.
        target: member with the class, e.g. `cls`, or `json:FIELD` for a field of a JSON object.

    Raises:
        ShardError: the shard is damaged or a sample lacks its image or class.
        OSError: it cannot be read.
    """
    status = shard.stat()
    identity = json.dumps([_FORMAT, target, status.st_size, status.st_mtime_ns, status.st_ino])
    kept = shard.with_name(f".{shard.name}.index.npz")
    index = _kept(kept, identity)
    if index is None:
        index = _scan(shard, target)
        _keep(index, kept, identity)
    return index


def _kept(file: Path, identity: str) -> ShardIndex | None:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if str(arrays["identity"]) != identity:
                return None
            return ShardIndex(**{name: arrays[name] for name in ("keys", "offsets", "sizes", "labels")})
    except Exception:  # noqa: BLE001 - whatever a damaged archive raises: it is only a copy of what the shard says
        return None


def _keep(index: ShardIndex, file: Path, identity: str) -> None:
    content = io.BytesIO()
    np.savez(content, identity=np.array(identity), **vars(index))
    partial = file.with_name(f"{file.name}.{secrets.token_hex(8)}")  # processes of several nodes may write it at once
    try:
        partial.write_bytes(content.getvalue())
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)


@dataclass(kw_only=True)
class _Sample:
    image: tuple[int, int] | None = None
    label: int | str | None = None


def _scan(shard: Path, target: str) -> ShardIndex:
    member, _, field = target.partition(":")
    samples: dict[str, _Sample] = {}
    places: dict[str, tuple[int, int]] = {}
    try:
        with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for entry in archive:
                key, suffix = _key(entry.name)
                place = _place(entry, places) if key else None
                if place is not None:
                    places[posixpath.normpath(entry.name)] = place
                    sample = samples.setdefault(key, _Sample())
                    if suffix in _IMAGES:
                        if sample.image is not None:
                            raise ShardError(f"sample {key} has two images")
                        sample.image = place
                    elif suffix == member:
                        if sample.label is not None:
                            raise ShardError(f"sample {key} has two members .{member}")
                        file.seek(place[0])
                        sample.label = _label(file.read(place[1]), entry.name, field)
                archive.members = []  # type: ignore[attr-defined] # else it holds every header; not in typeshed
            _check_end(file, archive.offset)
    except tarfile.TarError as error:
        raise ShardError(f"it is not a whole tar file: {error}") from error
    return _index(samples, member)


def _place(entry: tarfile.TarInfo, places: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Offset and size of the bytes of a member, of a link those of its target before it; None for a folder or a device.

    Raises:
        ShardError: the bytes are not in one piece, or a link leads to nothing before it.
    """
    if entry.issparse():
        raise ShardError(f"{entry.name} is stored with holes: write it without --sparse")
    if entry.isreg():
        return entry.offset_data, entry.size
    if not (entry.islnk() or entry.issym()):
        return None
    folder = posixpath.dirname(entry.name) if entry.issym() else ""
    target = posixpath.normpath(posixpath.join(folder, entry.linkname))
    if target not in places:
        raise ShardError(f"{entry.name} is a link to {entry.linkname}, which is no file before it in the shard")
    return places[target]


def _key(name: str) -> tuple[str, str]:
    """The sample's name and the member's, in lower case: WebDataset parts them at the first dot after the last slash.

    Empty for what is no part of a sample: a name without a dot, such as README, or that begins with one, as the files that macOS adds.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    return (f"{folder}{slash}{stem}", suffix.lower()) if stem and suffix else ("", "")


def _label(content: bytes, name: str, field: str) -> int | str:
    """The class in a member: a number or a name, in plain text or as a field of a JSON object."""
    try:
        value: Any = json.loads(content)[field] if field else content.decode("utf-8-sig").strip()
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError(
            f"{name} has no field {field} of a JSON object" if field else f"{name} is not UTF-8"
        ) from error
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise ShardError(f"the class in {name} is {value!r}, expected a number or a name")
    return int(value) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", str(value)) else str(value)


_PADDING = 2**20


def _check_end(file: IO[bytes], end: int) -> None:
    """Checks that the archive ends where tarfile stopped.

    It stops without an error at a damaged header, and at a cut between two members. An archive ends with two blocks of zeros (POSIX,
    pax, "ustar Interchange Format").
    """
    file.seek(end)
    blocks = file.read(2 * tarfile.BLOCKSIZE)
    if len(blocks) < 2 * tarfile.BLOCKSIZE:
        raise ShardError(f"it is truncated: the archive has no end after byte {end}")
    if any(blocks):
        raise ShardError(f"the header at byte {end} is damaged")
    while padding := file.read(_PADDING):
        if padding.count(0) != len(padding):
            raise ShardError(
                "more follows after its end, as when `cat` joins archives: join them with tar --concatenate"
            )


def _index(samples: dict[str, _Sample], member: str) -> ShardIndex:
    without = {
        f"image ({', '.join(sorted(_IMAGES))})": [key for key, one in samples.items() if one.image is None],
        f"member .{member}": [key for key, one in samples.items() if one.label is None],
    }
    for what, keys in without.items():
        if keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            raise ShardError(f"no {what} in sample {', '.join(keys[:3])}{more}")
    images = np.array([one.image for one in samples.values()], dtype=np.int64).reshape(-1, 2)
    labels = [one.label for one in samples.values()]
    is_number = all(isinstance(label, int) for label in labels)
    return ShardIndex(
        keys=np.array([os.fsencode(key) for key in samples], dtype=np.bytes_),
        offsets=images[:, 0].copy(),
        sizes=images[:, 1].copy(),
        labels=np.array(labels, dtype=np.int64) if is_number else np.array(labels, dtype=np.str_),
    )
