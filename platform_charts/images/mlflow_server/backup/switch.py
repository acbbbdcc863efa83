"""Put restored databases in the place of those that serve: the second half of a real restore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from psycopg2 import sql

from ..database import Database
from .drill import RESTORED
from .errors import RefusedError
from .scratch import drop_database, incomplete, maintenance

_REPLACED = "replaced_"
"""Begins the names of databases that a restore has put out of service."""


def switch(database: Database) -> None:
    """Rename the databases that serve to `replaced_…`, and those that were restored to their names, in one transaction.

    The server's connections end; it connects again by itself. Nothing is dropped. If this is interrupted, repeat it: until then the
    server may get no connections.

    Raises:
        RefusedError: nothing was restored, not to the end, or a restore is under way.
        psycopg2.Error: the server is unavailable, or rejects a statement.
    """
    database.refresh_credentials()
    now = datetime.now(UTC)
    with maintenance(database) as cursor:
        existing = _databases(cursor)
        # An interrupted switch may have left them closed.
        _allow_connections(cursor, existing & RESTORED.keys(), is_allowed=True)
        _check_restored(cursor, existing)
        renames = {name: f"{_REPLACED}{name}_{now:%Y%m%dt%H%M%S}" for name in RESTORED if name in existing}
        renames |= {restored: name for name, restored in RESTORED.items()}
        # PostgreSQL renames no database that somebody is connected to, and the server would connect again at once.
        _allow_connections(cursor, renames, is_allowed=False)
        try:
            _disconnect(cursor, renames)
            _rename(cursor, renames)
        except BaseException:
            _allow_connections(cursor, renames, is_allowed=True)
            raise
    for old, new in renames.items():
        print(f"{old} is now {new}", flush=True)


def discard(database: Database, name: str) -> None:
    """Drop a database that `switch` has replaced, or that was restored and is not needed.

    Raises:
        RefusedError: it is another one, does not exist, or a restore is under way.
        psycopg2.Error: the server is unavailable, or rejects the statement.
    """
    database.refresh_credentials()
    with maintenance(database) as cursor:
        found = sorted(one for one in _databases(cursor) if _is_spare(one))
        if name not in found:
            raise RefusedError(
                f"{name!r} is not a replaced or restored database; there are: {', '.join(found) or 'none'}"
            )
        drop_database(cursor, name)
    print(f"dropped {name}", flush=True)


def _check_restored(cursor: Any, existing: set[str]) -> None:  # noqa: ANN401 - psycopg2 has no types
    if missing := [name for name in RESTORED.values() if name not in existing]:
        raise RefusedError(
            f"there is no database {' and no '.join(missing)}; restore them first: make restore-drill ENV=… KEEP=1"
        )
    if unfinished := sorted(incomplete(cursor) & {*RESTORED.values()}):
        raise RefusedError(
            f"the restore that made {' and '.join(unfinished)} was interrupted; repeat it: "
            "make restore-drill ENV=… KEEP=1"
        )


def _rename(cursor: Any, renames: Mapping[str, str]) -> None:  # noqa: ANN401
    """Rename databases that accept no connections, and let them accept some."""
    connection = cursor.connection
    connection.autocommit = False
    try:
        with connection:
            for old, new in renames.items():
                statement = sql.SQL("ALTER DATABASE {} RENAME TO {}")
                cursor.execute(statement.format(sql.Identifier(old), sql.Identifier(new)))
            _allow_connections(cursor, renames.values(), is_allowed=True)
    finally:
        connection.autocommit = True


def _is_spare(name: str) -> bool:
    return name in RESTORED.values() or name.startswith(_REPLACED)


def _databases(cursor: Any) -> set[str]:  # noqa: ANN401 - psycopg2 has no types
    cursor.execute("SELECT datname FROM pg_database")
    return {name for (name,) in cursor.fetchall()}


def _allow_connections(cursor: Any, names: Iterable[str], *, is_allowed: bool) -> None:  # noqa: ANN401
    for name in names:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        cursor.execute(statement.format(sql.Identifier(name), sql.Literal(is_allowed)))


def _disconnect(cursor: Any, names: Iterable[str]) -> None:  # noqa: ANN401
    # Clients only: autovacuum belongs to the superuser, whom this user may not stop, and PostgreSQL stops it for a renaming.
    cursor.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = ANY(%s) AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        ([*names],),
    )
