"""What tells one version of a code folder from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SUFFIX = ".tar.gz"
"""Ending of a code archive's name."""


@dataclass(frozen=True, kw_only=True)
class CodeIdentity:
    """The content of a code folder, and where it comes from.

    Attributes:
        sha256: of the uncompressed tar, in hex, as an image's diff id: another version of the compressor does not change it.
        revision: commit of the git work tree that the folder is in; None outside of one.
        is_dirty: whether what is packed differs from that commit; None without one.
    """

    sha256: str
    revision: str | None = None
    is_dirty: bool | None = None

    @property
    def short(self) -> str:
        """The beginning of the hash, which names files."""
        return self.sha256[:16]

    def describe(self) -> str:
        """For people, e.g. `3f2a9c81b7d40e56 (commit 1a2b3c4, changed)`."""
        if self.revision is None:
            return self.short
        return f"{self.short} (commit {self.revision[:7]}{', changed' if self.is_dirty else ''})"

    def dump(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> CodeIdentity:
        """From the result of `dump`; raises KeyError without a hash."""
        return cls(sha256=record["sha256"], revision=record.get("revision"), is_dirty=record.get("is_dirty"))


def is_archive(path: Path) -> bool:
    """Whether a path names an archive and not a folder."""
    return path.name.endswith(SUFFIX) and not path.is_dir()


def identity_file(archive: Path) -> Path:
    """Where the identity of an archive is, beside it."""
    return archive.with_name(archive.name.removesuffix(SUFFIX) + ".json")
