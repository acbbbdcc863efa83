"""The checksums by which S3 objects are verified.

Each object has an entity tag. It is the MD5 of an object that was uploaded in one piece, and of the MD5s of its parts otherwise, unless the
object is encrypted with a KMS or customer key (S3 API reference, "Object"). Objects may have another checksum too, of the
whole object or of the checksums of its parts (S3 user guide, "Checking object integrity"). The standard library has no CRC32C and no
CRC-64/NVME.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Hash(Protocol):
    """What hashlib's objects have in common with a CRC."""

    def update(self, data: bytes, /) -> None:
        """Add data."""

    def digest(self) -> bytes:
        """The checksum of all data."""


class Crc32:
    """CRC-32 with the interface of hashlib."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        """Add data."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """The checksum, big-endian as in S3."""
        return self._value.to_bytes(4, "big")


def _md5() -> Hash:
    return hashlib.md5(usedforsecurity=False)


_HASHES: Mapping[str, Callable[[], Hash]] = {
    "ETag": _md5,
    "ChecksumSHA256": hashlib.sha256,
    "ChecksumSHA1": lambda: hashlib.sha1(usedforsecurity=False),
    "ChecksumCRC32": Crc32,
}


class Check(NamedTuple):
    """A checksum that an object must have.

    Attributes:
        name: field of the S3 API.
        expected: its value.
        is_of_parts: whether it is the checksum of the parts' checksums.
    """

    name: str
    expected: bytes
    is_of_parts: bool

    def new(self) -> Hash:
        """A new hash."""
        return _HASHES[self.name]()

    def combined(self, digests: Sequence[bytes]) -> bytes:
        """The checksum of the parts' checksums."""
        whole = self.new()
        whole.update(b"".join(digests))
        return whole.digest()


def checks_of(response: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checksums in the response to GetObject or HeadObject that can be computed here; none if there is no such one."""
    return tuple(check for name in _HASHES if (check := _check(name, response)) is not None)


def _check(name: str, response: Mapping[str, Any]) -> Check | None:
    text = str(response.get(name, "")).strip('"')
    value, _, parts = text.partition("-")
    if not value or (name == "ETag" and not _etag_is_md5(response)):
        return None
    if "-" in str(response.get("ETag", "")) and not parts and response.get("ChecksumType") != "FULL_OBJECT":
        return None  # of an object of parts, and not known whether it is of the whole or of the parts' checksums
    try:
        expected = bytes.fromhex(value) if name == "ETag" else base64.b64decode(value)
    except ValueError:
        return None
    return Check(name, expected, bool(parts))


def _etag_is_md5(response: Mapping[str, Any]) -> bool:
    return response.get("ServerSideEncryption", "AES256") == "AES256" and not response.get("SSECustomerAlgorithm")
