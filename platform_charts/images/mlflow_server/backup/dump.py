"""Write the rows of a database to a backup, all as of one moment, while the server goes on."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..database import Database
from .errors import BackupError
from .folder import BackupFolder
from .manifest import DatabaseEntry, TableEntry
from .tables import (
    SESSION,
    VERSION_TABLES,
    Table,
    contents_of,
    copy_out,
    find_tables,
    lock,
    revision_of,
    sequences_of,
)

_COMPRESSION = 6
_ATTEMPTS = 5


@contextmanager
def snapshot(database: Database, original: str, *, name: str | None = None) -> Iterator[Any]:
    """A cursor that sees one moment of a database, and cannot change it. Until it is closed, no migration changes a table.

    The tables are locked before the moment, which is that of the first query: to an older snapshot a table that a migration rewrites
    is empty (PostgreSQL documentation, "Concurrency Control", "Caveats").

    Args:
        database: the server.
        original: the database of runs or that of accounts.
        name: name of a copy, to look at it instead.

    Raises:
        BackupError: migrations change the tables faster than they can be locked.
        psycopg2.Error: the server is unavailable, rejects the credentials, or the database has no schema.
    """
    version_table = VERSION_TABLES[original]
    with closing(database.connect(name or original, options=SESSION)) as connection, connection.cursor() as cursor:
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
        for _ in range(_ATTEMPTS):
            found = find_tables(cursor, version_table=version_table)
            connection.rollback()
            lock(cursor, [version_table, *(table.name for table in found)])
            if find_tables(cursor, version_table=version_table) == found:
                yield cursor
                return
            connection.rollback()
        raise BackupError(
            f"migrations change the tables of {original} again and again; repeat it when MLflow's bootstrap Job is over"
        )


def dump(cursor: Any, name: str, folder: BackupFolder, *, work: Path) -> DatabaseEntry:  # noqa: ANN401 - psycopg2 has no types
    """Copy every table.

    Args:
        cursor: of a `snapshot`, so that rows and digests are of the same moment.
        name: the database.
        folder: the backup.
        work: a folder with room for the largest table, compressed.

    Raises:
        psycopg2.Error: of the server.
        Exception: of botocore.
    """
    tables = find_tables(cursor, version_table=VERSION_TABLES[name])
    entries = tuple(_dump_table(cursor, table, name, folder, work) for table in tables)
    cursor.execute("SELECT pg_database_size(current_database())")
    [(size,)] = cursor.fetchall()
    return DatabaseEntry(
        name=name,
        revision=revision_of(cursor, version_table=VERSION_TABLES[name]),
        bytes=size,
        tables=entries,
        # Sequences follow no snapshot. Read last, they are ahead of every row above.
        sequences=sequences_of(cursor),
    )


def _dump_table(cursor: Any, table: Table, database: str, folder: BackupFolder, work: Path) -> TableEntry:  # noqa: ANN401
    file = work / "table.gz"
    with gzip.open(file, "wb", compresslevel=_COMPRESSION) as stream:
        cursor.copy_expert(copy_out(table), stream)
    entry = TableEntry(
        name=table.name,
        columns=table.columns,
        contents=contents_of(cursor, table),
        file=folder.put(file, f"{database}/{table.name}.copy.gz"),
    )
    file.unlink()
    return entry
