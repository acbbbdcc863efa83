"""The manifest of a backup: what its files are, and what every table held at the moment of its snapshot."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .errors import DamagedError

FORMAT = 1
"""Version of the layout of a backup."""

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of the backup: its name in the folder, its size in bytes and its sha256 in hex."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a table holds: the number of rows, and a digest that does not depend on their order."""

    rows: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """A table.

    Attributes:
        name: its name in the schema `public`.
        columns: the columns in the file, in order.
        contents: what it held.
        file: its rows in PostgreSQL's text format, compressed with gzip.
    """

    name: str
    columns: tuple[str, ...]
    contents: Contents
    file: StoredFile


@dataclass(frozen=True, kw_only=True)
class DatabaseEntry:
    """A database, as of one snapshot.

    Attributes:
        name: its name on the server.
        revision: revision of its schema, one of MLflow's migrations.
        bytes: its size on the server's disk.
        tables: in an order in which they can be loaded: what a foreign key refers to comes first.
        sequences: the last value of each sequence that was used.
    """

    name: str
    revision: str
    bytes: int
    tables: tuple[TableEntry, ...]
    sequences: dict[str, int]

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(table.contents.rows for table in self.tables)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A list of things that are kept elsewhere, one JSON object per line, compressed with gzip.

    Attributes:
        file: the list.
        entries: number of lines.
        bytes: size of all that it lists.
    """

    file: StoredFile
    entries: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete backup.

    Attributes:
        identifier: its name, and the name of its folder.
        created: time of the first snapshot. What was written later is not in the backup.
        mlflow: version of MLflow.
        databases: in the order in which they were read.
        artifacts: versions of the objects that were current after the snapshots.
        checkpoints: what MLflow knew of the runs' checkpoints; their files are on the shared file system.
    """

    identifier: str
    created: datetime
    mlflow: str
    databases: tuple[DatabaseEntry, ...]
    artifacts: Listing
    checkpoints: Listing

    @property
    def database_bytes(self) -> int:
        """Size of the databases on the server's disk."""
        return sum(database.bytes for database in self.databases)

    def encode(self) -> bytes:
        """JSON with a checksum of itself."""
        content = {**asdict(self), "created": self.created.isoformat(), "format": FORMAT}
        return json.dumps({**content, "sha256": _checksum(content)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Read a manifest.

        Raises:
            DamagedError: it is incomplete, was changed, or is of another format.
        """
        try:
            content: dict[str, Any] = json.loads(data)
            checksum, version = content.pop("sha256"), content.get("format")
            if checksum != _checksum(content):
                raise DamagedError(f"{MANIFEST_FILE} does not match its checksum")
            if version != FORMAT:
                raise DamagedError(f"{MANIFEST_FILE} has format {version}; this version reads format {FORMAT}")
            del content["format"]
            return _MANIFEST.validate_python(content)
        except (ValueError, KeyError, AttributeError, ValidationError) as error:
            raise DamagedError(f"{MANIFEST_FILE} cannot be read: {error}") from error


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_MANIFEST = TypeAdapter(Manifest)
