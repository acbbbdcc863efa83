"""Databases are dropped in spite of what is at work in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from psycopg2 import OperationalError

from platform_charts.images.mlflow_server.backup.scratch import scratch
from tests.platform_charts.images.mlflow_server.backups import Backed
from tests.platform_charts.images.mlflow_server.platform import Platform

BUSY = "drill_busy"
_AUTOVACUUM = "SELECT datname FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
_PATIENCE = 60.0


@pytest.mark.timeout(180)
def test_a_database_is_dropped_while_autovacuum_and_a_connection_are_in_it(backed: Backed) -> None:
    services = backed.services
    database = backed.new_database()
    database.refresh_credentials()
    with scratch(database) as made:
        made.create(BUSY)
        with _vacuumed_slowly(services), closing(database.connect(BUSY)) as connection, connection.cursor() as cursor:
            deadline = time.monotonic() + _PATIENCE
            while (BUSY,) not in services.administer(_AUTOVACUUM):
                assert time.monotonic() < deadline, "no autovacuum"
                time.sleep(0.05)
            made.drop(BUSY)
            with pytest.raises(OperationalError):
                cursor.execute("SELECT 1")
    assert BUSY not in backed.databases()


@contextmanager
def _vacuumed_slowly(services: Platform) -> Iterator[None]:
    """Let autovacuum begin with the database within a second, and take minutes."""
    # A vacuum that may do a page every 100 ms.
    slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 0"
    services.execute_in(BUSY, f"CREATE TABLE busy WITH ({slow}) AS SELECT generate_series(1, 500000) AS number")
    services.execute_in(BUSY, "DELETE FROM busy")
    services.administer("ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        services.administer("ALTER SYSTEM RESET autovacuum_naptime", "SELECT pg_reload_conf()")
