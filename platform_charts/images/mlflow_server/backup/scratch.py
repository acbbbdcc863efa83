"""Databases that a drill makes and drops, and nobody else's.

A comment on a database says that it is a drill's. An advisory lock, which the server releases when the connection ends, keeps drills
apart: whoever has it may drop what an interrupted drill has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from psycopg2 import errors, sql

from ..database import MAINTENANCE, Database
from .errors import RefusedError

MARK = "ray-train-platform: a restore drill made this database, and drops it"
_LOCK = 0x72_74_70_64_72_69_6C_6C
"""`rtpdrill` in ASCII."""


class Scratch:
    """Databases of one drill.

    Args:
        database: the server.
        cursor: of a connection to another database, in autocommit mode.
    """

    def __init__(self, database: Database, cursor: Any) -> None:  # noqa: ANN401 - psycopg2 has no types
        self._database = database
        self._cursor = cursor

    def remove_left_over(self, name: str) -> bool:
        """Drop a database that an interrupted drill has left; returns whether there was one."""
        is_left_over = name in incomplete(self._cursor)
        if is_left_over:
            self.drop(name)
        return is_left_over

    def check_free(self, name: str, *, remedy: str) -> None:
        """Refuse a name that a database has which no drill has made, or that was kept.

        Args:
            name: the name.
            remedy: what to do about the database.

        Raises:
            RefusedError: there is one, and something is in it.
        """
        self._cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        if self._cursor.fetchone() is None:
            return
        # A drill may have been killed between the creation and the comment.
        if not self._is_empty(name):
            raise RefusedError(f"the database {name} exists; {remedy}")
        self.drop(name)

    def create(self, name: str) -> None:
        """Create an empty database with the mark.

        Raises:
            psycopg2.Error: the role may not create databases.
        """
        # A copy of template0 needs no exclusive access to a database that somebody may be connected to.
        self._cursor.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        self._cursor.execute(sql.SQL("COMMENT ON DATABASE {} IS %s").format(sql.Identifier(name)), (MARK,))

    def keep(self, names: Iterable[str]) -> None:
        """Remove the marks, of all or none: from now on no drill drops these databases, and they may be put in place."""
        # PostgreSQL runs several statements of one message in one transaction.
        comment = sql.SQL("COMMENT ON DATABASE {} IS NULL")
        self._cursor.execute(sql.SQL("; ").join(comment.format(sql.Identifier(name)) for name in names))

    def drop(self, name: str) -> None:
        """Drop a database, with its connections."""
        drop_database(self._cursor, name)

    def check_room(self, needed: int, *, storage: int) -> None:
        """Refuse to fill the server's disk. RDS may enlarge it up to its limit, and does not make it smaller again.

        Args:
            needed: size of the databases to restore, in bytes.
            storage: size that the storage may grow to.

        Raises:
            RefusedError: they do not fit beside the others.
        """
        self._cursor.execute(
            "SELECT sum(pg_database_size(oid)) FROM pg_database WHERE has_database_privilege(oid, 'CONNECT')"
        )
        [(used,)] = self._cursor.fetchall()
        if int(used) + needed > storage:
            gib = 2**30
            raise RefusedError(
                f"the restored databases need {needed / gib:.3f} GiB beside {int(used) / gib:.3f} GiB, and the storage "
                f"may grow to {storage / gib:g} GiB: raise database.max_allocated_gib"
            )

    def _is_empty(self, name: str) -> bool:
        with closing(self._database.connect(name)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
            [(relations,)] = cursor.fetchall()
        return bool(relations == 0)


def drop_database(cursor: Any, name: str) -> None:  # noqa: ANN401 - psycopg2 has no types
    """Drop a database if it exists, with its connections.

    Raises:
        psycopg2.Error: it is not this role's, or others still are connected to it.
    """
    drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name))
    try:
        cursor.execute(sql.SQL("{} WITH (FORCE)").format(drop))
    except errors.InsufficientPrivilege:
        # FORCE ends nothing if it may not end everything, and autovacuum may be at work in the database. Without FORCE,
        # PostgreSQL cancels autovacuum, and waits for connections to go.
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user",
            (name,),
        )
        cursor.execute(drop)


def incomplete(cursor: Any) -> set[str]:  # noqa: ANN401 - psycopg2 has no types
    """Databases with the mark: a drill is restoring them, or was interrupted."""
    cursor.execute("SELECT datname FROM pg_database WHERE shobj_description(oid, 'pg_database') = %s", (MARK,))
    return {name for (name,) in cursor.fetchall()}


@contextmanager
def scratch(database: Database) -> Iterator[Scratch]:
    """The only drill on the server, until the block ends.

    Raises:
        RefusedError: another drill is under way.
        psycopg2.Error: the server is unavailable or rejects the credentials.
    """
    with maintenance(database) as cursor:
        yield Scratch(database, cursor)


@contextmanager
def maintenance(database: Database) -> Iterator[Any]:
    """A cursor in autocommit mode, of a connection to another database; no drill is under way until the block ends.

    Raises:
        RefusedError: a drill is under way.
        psycopg2.Error: the server is unavailable or rejects the credentials.
    """
    with closing(database.connect(MAINTENANCE)) as connection:
        connection.autocommit = True  # databases cannot be created or dropped in a transaction
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,))
            [(is_ours,)] = cursor.fetchall()
            if not is_ours:
                raise RefusedError("another restore is under way on this server; wait until it is over")
            yield cursor
