"""What a database holds: its tables, their rows and sequences, as queries on PostgreSQL's catalogue.

The digest of a table is a sum over its rows, which PostgreSQL computes in one pass: equal rows in another order give the same digest, and
neither collations nor indexes matter. Sums of two halves of an MD5 hash find what went wrong, not what somebody forged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from psycopg2 import sql

from ..names import ACCOUNTS, RUNS
from .manifest import Contents

SESSION = " ".join(
    f"-c {setting}"
    for setting in (
        "DateStyle=ISO,YMD",
        "IntervalStyle=postgres",
        "TimeZone=UTC",
        "extra_float_digits=1",
        "bytea_output=hex",
        "client_encoding=UTF8",
    )
)
"""Options of a connection: a value has the same text wherever it is read, whatever the server's defaults are."""

VERSION_TABLES: Mapping[str, str] = {RUNS: "alembic_version", ACCOUNTS: "alembic_version_auth"}
"""Table with the revision of the schema, by database. The migrations write it, so backups do not contain its rows."""

_TABLES = """
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attname COLLATE "C")
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
GROUP BY c.relname ORDER BY c.relname COLLATE "C"
"""
"""Generated columns are left out: PostgreSQL computes them again, and accepts no values for them."""

_REFERENCES = """
SELECT t.relname, r.relname
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid
WHERE k.contype = 'f' AND k.connamespace = 'public'::regnamespace AND t.oid <> r.oid
"""
"""Without references of a table to itself, which PostgreSQL checks at the end of a statement."""

_DIGEST = """
SELECT count(*), coalesce(sum(('x' || left(hash, 16))::bit(64)::bigint::numeric), 0),
  coalesce(sum(('x' || right(hash, 16))::bit(64)::bigint::numeric), 0)
FROM (SELECT md5(ROW({columns})::text) AS hash FROM {table}) AS hashes
"""

_SEQUENCES = """
SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL
"""


@dataclass(frozen=True)
class Table:
    """A table of the schema `public`, and its columns by name."""

    name: str
    columns: tuple[str, ...]


def find_tables(cursor: Any, *, version_table: str) -> tuple[Table, ...]:  # noqa: ANN401 - psycopg2 has no types
    """All tables but the one of the revision; those that a foreign key refers to come first."""
    cursor.execute(_TABLES)
    found = {name: Table(name, tuple(columns)) for name, columns in cursor.fetchall() if name != version_table}
    order = TopologicalSorter[str](dict.fromkeys(found, ()))
    cursor.execute(_REFERENCES)
    for name, referred in sorted(cursor.fetchall()):
        order.add(name, referred)
    return tuple(found[name] for name in order.static_order())


def contents_of(cursor: Any, table: Table) -> Contents:  # noqa: ANN401
    """What a table holds; the connection must have been made with `SESSION`."""
    cursor.execute(sql.SQL(_DIGEST).format(columns=_identifiers(table.columns), table=sql.Identifier(table.name)))
    [(rows, first, second)] = cursor.fetchall()
    return Contents(rows=rows, digest=f"{int(first) % 2**64:016x}{int(second) % 2**64:016x}")


def lock(cursor: Any, tables: Iterable[str]) -> None:  # noqa: ANN401
    """Keep migrations from changing the tables until the end of the transaction; rows may change.

    It waits for a migration that is under way. Other than a query, it does not set the moment that the transaction sees.
    """
    cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_identifiers(tables)))


def copy_out(table: Table) -> sql.Composable:
    """The statement that writes the rows to a file."""
    query = sql.SQL("COPY (SELECT {columns} FROM {table}) TO STDOUT")
    return query.format(columns=_identifiers(table.columns), table=sql.Identifier(table.name))


def copy_in(table: Table) -> sql.Composable:
    """The statement that reads the rows from a file."""
    query = sql.SQL("COPY {table} ({columns}) FROM STDIN")
    return query.format(columns=_identifiers(table.columns), table=sql.Identifier(table.name))


def empty(cursor: Any, tables: Iterable[Table]) -> None:  # noqa: ANN401
    """Remove all rows, such as those that migrations insert, and what their sequences have counted."""
    names = _identifiers(table.name for table in tables)
    cursor.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(names))


def revision_of(cursor: Any, *, version_table: str) -> str:  # noqa: ANN401
    """Revision of the schema."""
    cursor.execute(sql.SQL("SELECT version_num FROM {}").format(sql.Identifier(version_table)))
    [(revision,)] = cursor.fetchall()
    return str(revision)


def sequences_of(cursor: Any) -> dict[str, int]:  # noqa: ANN401
    """The last value of each sequence that was used."""
    cursor.execute(_SEQUENCES)
    return dict(cursor.fetchall())


def set_sequences(cursor: Any, values: Mapping[str, int]) -> None:  # noqa: ANN401
    """Continue sequences where they were."""
    for name, value in values.items():
        cursor.execute("SELECT setval(format('public.%%I', %s)::regclass, %s)", (name, value))


def _identifiers(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))
