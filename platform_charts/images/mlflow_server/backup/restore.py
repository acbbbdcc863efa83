"""Restore a database of a backup into an empty one, and compare the two."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ..database import Database
from .errors import BackupError
from .folder import BackupFolder
from .manifest import DatabaseEntry
from .schema import migrate_schema
from .tables import (
    SESSION,
    VERSION_TABLES,
    Table,
    contents_of,
    copy_in,
    empty,
    find_tables,
    revision_of,
    sequences_of,
    set_sequences,
)


def restore(database: Database, entry: DatabaseEntry, target: str, folder: BackupFolder, *, work: Path) -> None:
    """Create the schema of a backup in an empty database, and load its rows in one transaction.

    Args:
        database: the server.
        entry: the database in the backup.
        target: name of the empty database.
        folder: the backup.
        work: a folder with room for the largest table, compressed.

    Raises:
        BackupError: a file is damaged, or MLflow's schema lacks a table of the backup.
        psycopg2.Error: the server rejects a row, or has no room for it.
    """
    migrate_schema(entry.name, database.uri(target), entry.revision)
    with closing(database.connect(target, options=SESSION)) as connection, connection, connection.cursor() as cursor:
        created = find_tables(cursor, version_table=VERSION_TABLES[entry.name])
        known = {table.name for table in created}
        if unknown := [table.name for table in entry.tables if table.name not in known]:
            raise BackupError(
                f"{entry.name} has tables that MLflow's schema does not have at revision {entry.revision}: "
                f"{', '.join(unknown)}"
            )
        empty(cursor, created)
        for table in entry.tables:
            file = work / "table.gz"
            folder.get(table.file, file)
            with gzip.open(file, "rb") as stream:
                cursor.copy_expert(copy_in(Table(table.name, table.columns)), stream)
            file.unlink()
        set_sequences(cursor, entry.sequences)


def differences(cursor: Any, entry: DatabaseEntry) -> Iterator[str]:  # noqa: ANN401 - psycopg2 has no types
    """What a restored database has that the backup has not, and the reverse.

    Args:
        cursor: of the restored database, with the options `SESSION`.
        entry: the database in the backup.

    Raises:
        psycopg2.Error: of the server.
    """
    version_table = VERSION_TABLES[entry.name]
    if (revision := revision_of(cursor, version_table=version_table)) != entry.revision:
        yield f"{entry.name}: schema revision {revision} instead of {entry.revision}"
    restored = {table.name: table for table in find_tables(cursor, version_table=version_table)}
    wanted = {table.name: table for table in entry.tables}
    for name in sorted(restored.keys() - wanted.keys()):
        yield f"{entry.name}: the table {name} is not in the backup"
    for name, table in wanted.items():
        if name not in restored:
            yield f"{entry.name}: the table {name} is missing"
        elif restored[name].columns != table.columns:
            yield (
                f"{entry.name}: the table {name} has the columns {', '.join(restored[name].columns)} "
                f"instead of {', '.join(table.columns)}"
            )
        elif (found := contents_of(cursor, restored[name])) != table.contents:
            yield (
                f"{entry.name}: the table {name} has {found.rows:,} rows with digest {found.digest} instead of "
                f"{table.contents.rows:,} with {table.contents.digest}"
            )
    if (sequences := sequences_of(cursor)) != entry.sequences:
        yield f"{entry.name}: sequences at {sequences} instead of {entry.sequences}"
