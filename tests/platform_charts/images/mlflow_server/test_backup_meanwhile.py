"""What happens while a backup is made: other backups, writes, migrations, the cleanup, and the end of its process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from platform_charts.images.mlflow_server.backup.errors import RefusedError
from platform_charts.images.mlflow_server.backup.folder import Backups
from platform_charts.images.mlflow_server.backup.lines import read_lines
from platform_charts.images.mlflow_server.backup.manifest import MANIFEST_FILE
from platform_charts.images.mlflow_server.names import ACCOUNTS, BACKUP_FOLDER, RUNS
from tests.engines.mlflow_server import MlflowServer
from tests.platform_charts.images.mlflow_server.backups import Backed, runs_of, table_of, writer
from tests.platform_charts.images.mlflow_server.platform import TEAMS
from tests.waiting import wait_until

_DAYS = 86_400_000
_LOCK_USERS = "LOCK TABLE users IN ACCESS EXCLUSIVE MODE"
"""Stops a backup between the two databases."""


def test_a_backup_is_of_one_moment_while_a_writer_goes_on(backed: Backed, tmp_path: Path) -> None:
    [(run,)] = backed.services.query("SELECT run_uuid FROM params WHERE key = 'text' LIMIT 1")
    with writer(backed.services, run) as written:
        wait_until(lambda: written[0] > 10, seconds=120)
        manifest = backed.back_up()
        before = written[0]
        wait_until(lambda: written[0] > before, seconds=120)
    found = {
        table: sum("written-" in line for line in backed.rows(manifest, table, tmp_path))
        for table in ("params", "tags")
    }
    assert found["params"] == found["tags"]
    assert 10 <= found["params"] < written[0]


def test_a_backup_waits_for_a_migration_and_has_what_it_leaves(backed: Backed) -> None:
    """A snapshot from before the migration would see the rewritten table empty, without an error."""
    rewrites = "ALTER TABLE params ALTER value TYPE varchar(8000) USING value || ''"
    with ThreadPoolExecutor() as pool, transaction(backed, rewrites) as commit:
        backup = pool.submit(backed.back_up)
        wait_until(lambda: is_waiting(backed), seconds=120)
        commit()
        manifest = backup.result()
    [(rows,)] = backed.services.query("SELECT count(*) FROM params")
    assert table_of(runs_of(manifest), "params").contents.rows == rows > 0


@pytest.mark.extended
def test_a_backup_during_a_cleanup_has_the_rows_of_its_moment_and_restores(
    backed: Backed, server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**backed.services.credentials(TEAMS[0]), "MLFLOW_ENABLE_WORKSPACES": "true"}.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(server.uri)
    run = client.create_run(client.create_experiment("expired")).info.run_id
    client.log_text(run, "x", "expired.txt")
    client.delete_run(run)
    long_ago = f"UPDATE runs SET deleted_time = deleted_time - {31 * _DAYS} WHERE run_uuid = '{run}' RETURNING 1"  # noqa: S608
    backed.services.query(long_ago)
    with ThreadPoolExecutor() as pool, transaction(backed, _LOCK_USERS, database=ACCOUNTS) as commit:
        backup = pool.submit(backed.back_up)
        wait_until(lambda: is_waiting(backed), seconds=120)
        assert backed.services.clean_up() == 0
        commit()
        manifest = backup.result()
    assert backed.services.query(f"SELECT 1 FROM runs WHERE run_uuid = '{run}'") == []  # noqa: S608
    assert sum(run in line for line in backed.rows(manifest, "runs", tmp_path)) == 1
    backed.folder(manifest).get(manifest.artifacts.file, tmp_path / "artifacts")
    assert not [line for line in read_lines(tmp_path / "artifacts") if run in line["key"]]
    assert backed.drill(backup=manifest.identifier).problems == ()


@pytest.mark.extended
def test_a_backup_that_is_killed_has_files_and_no_manifest(backed: Backed) -> None:
    before, backups = backed.back_up(), Backups(backed.s3, backed.services.bucket)
    known = {*backups.identifiers()}
    command = [sys.executable, "-m", "platform_charts.images.mlflow_server", "backup"]
    environment = {**os.environ, **backed.services.program_environment}
    with transaction(backed, _LOCK_USERS, database=ACCOUNTS), subprocess.Popen(command, env=environment) as process:
        try:
            wait_until(lambda: is_waiting(backed), seconds=120)
        finally:
            process.kill()
    [interrupted] = {*backups.identifiers()} - known
    prefix = f"{BACKUP_FOLDER}/{interrupted}/"
    keys = [name for name in backed.services.object_names() if name.startswith(prefix)]
    try:
        assert f"{prefix}{RUNS}/params.copy.gz" in keys
        assert f"{prefix}{MANIFEST_FILE}" not in keys
        _, newest, incomplete = backups.newest()
        assert (newest.identifier, incomplete) == (before.identifier, [interrupted])
        with pytest.raises(RefusedError, match=f"no complete backup '{interrupted}'"):
            backups.open(interrupted)
    finally:
        backed.erase(prefix)


@contextmanager
def transaction(backed: Backed, statement: str, *, database: str = RUNS) -> Iterator[Callable[[], None]]:
    """Run a statement and hold its locks until the end of the block, or until the function that is yielded commits it."""
    with closing(backed.services.database.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        yield connection.commit


def is_waiting(backed: Backed) -> bool:
    """Whether somebody waits for a lock."""
    found: list[Any] = backed.services.administer("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return bool(found)
