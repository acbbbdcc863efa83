"""Restore drills of a server with two teams, on the server that serves, and a real restore."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils as runs_schema
from psycopg2 import OperationalError

from platform_charts.images.mlflow_server.__main__ import main
from platform_charts.images.mlflow_server.backup.drill import RESTORED, SCRATCH
from platform_charts.images.mlflow_server.backup.dump import dump, snapshot
from platform_charts.images.mlflow_server.backup.errors import RefusedError
from platform_charts.images.mlflow_server.backup.folder import Backups
from platform_charts.images.mlflow_server.backup.manifest import Manifest
from platform_charts.images.mlflow_server.backup.report import REPORT, DrillReport
from platform_charts.images.mlflow_server.backup.restore import differences, restore
from platform_charts.images.mlflow_server.backup.schema import check_revision, migrate_schema
from platform_charts.images.mlflow_server.backup.scratch import scratch
from platform_charts.images.mlflow_server.backup.switch import discard, switch
from platform_charts.images.mlflow_server.backup.tables import VERSION_TABLES, revision_of
from platform_charts.images.mlflow_server.names import ACCOUNTS, RUNS
from tests.engines.mlflow_server import MlflowServer
from tests.platform_charts.images.mlflow_server.backups import Backed
from tests.platform_charts.images.mlflow_server.platform import TEAMS, USER, Platform
from tests.waiting import wait_until

_DRILL = {"DRILL_ARTIFACTS": "3", "DRILL_STORAGE_GIB": "100"}


@contextmanager
def drill_process(backed: Backed) -> Iterator[subprocess.Popen[str]]:
    """The image's drill as a process, once it has made its first database."""
    command = [sys.executable, "-m", "platform_charts.images.mlflow_server", "restore-drill"]
    environment = {**os.environ, **backed.services.program_environment, **_DRILL}
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            wait_until(lambda: SCRATCH[RUNS] in backed.databases() or process.poll() is not None, seconds=120)
            yield process
        finally:
            process.kill()


@pytest.mark.extended
def test_a_drill_that_was_killed_is_cleaned_up_by_the_next_which_passes(backed: Backed, manifest: Manifest) -> None:
    with drill_process(backed) as process:
        with pytest.raises(RefusedError, match="another restore is under way"):
            backed.drill()
        process.kill()
        process.wait()
    assert SCRATCH[RUNS] in backed.databases()
    wait_until(lambda: not _connections(backed), seconds=120)
    report = backed.drill(backup=manifest.identifier)
    assert report.problems == ()
    assert f"dropped {SCRATCH[RUNS]}, which an interrupted drill left" in report.notes
    assert backed.databases() == set()
    _check_figures(report, manifest)


def _connections(backed: Backed) -> list[object]:
    """Connections of a drill, which the server ends soon after the process."""
    return [*backed.services.administer("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted")]


def _check_figures(report: DrillReport, manifest: Manifest) -> None:
    rows = {table.name: table.contents.rows for entry in manifest.databases for table in entry.tables}
    assert report.mlflow["users"] == rows["users"] == 1 + len(TEAMS)
    assert report.mlflow["experiments"] >= rows["experiments"] > len(TEAMS)
    assert report.mlflow["experiments with runs"] >= len(TEAMS)
    assert [one.rows for one in report.databases] == [entry.rows for entry in manifest.databases]
    assert report.artifacts == manifest.artifacts.entries
    assert report.artifacts_read == 3
    assert report.checkpoints == manifest.checkpoints.entries >= len(TEAMS)
    assert 0 < report.restore_seconds < report.total_seconds
    *_, last = report.lines()
    read = json.loads(last.removeprefix(REPORT))
    assert (read["passed"], read["backup"], read["age_seconds"]) == (True, manifest.identifier, report.age_seconds)


def test_a_signal_while_rows_are_loaded_is_not_mistaken_for_a_damaged_backup(
    backed: Backed, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg2 turns an exception of the stream that it reads from into an error of the server."""

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().read(size)

    monkeypatch.setattr(gzip, "open", lambda *_: Stream(b"1\n"))
    with pytest.raises(SystemExit) as ended:
        backed.drill(backup=manifest.identifier)
    assert ended.value.code == 128 + signal.SIGTERM
    assert backed.databases() == set()


def test_a_role_that_may_not_create_databases_fails_the_drill(backed: Backed, manifest: Manifest) -> None:
    backed.services.administer(f"ALTER ROLE {USER} NOCREATEDB")
    try:
        report = backed.drill(backup=manifest.identifier)
    finally:
        backed.services.administer(f"ALTER ROLE {USER} CREATEDB")
    assert "permission denied to create database" in report.problems[0]
    assert report.restore_seconds > 0


def test_a_drill_that_does_not_fit_beside_the_databases_or_of_an_unknown_schema_is_refused(
    backed: Backed, manifest: Manifest
) -> None:
    with pytest.raises(RefusedError, match="has revision ffffffffffff, which this MLflow does not know"):
        check_revision(RUNS, "ffffffffffff")
    with pytest.raises(RefusedError, match=r"need 0\.\d+ GiB beside .* raise database.max_allocated_gib"):
        backed.drill(backup=manifest.identifier, storage_bytes=manifest.database_bytes)
    assert backed.databases() == set()


def test_a_database_that_no_drill_has_made_is_kept(backed: Backed, manifest: Manifest) -> None:
    services = backed.services
    services.administer(f"CREATE DATABASE {SCRATCH[ACCOUNTS]} OWNER {USER}")
    services.execute_in(SCRATCH[ACCOUNTS], "CREATE TABLE somebodys (x int)")
    with pytest.raises(RefusedError, match=f"the database {SCRATCH[ACCOUNTS]} exists; no drill has made it"):
        backed.drill(backup=manifest.identifier)
    assert backed.databases() == {SCRATCH[ACCOUNTS]}
    backed.drop_databases()


def test_an_unknown_backup_is_refused_with_the_exit_status_3(
    backed: Backed, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**backed.services.program_environment, **_DRILL}.items():
        monkeypatch.setenv(name, value)
    assert main(["restore-drill", "--backup", "yesterday"]) == 3
    error = capsys.readouterr().err
    assert error.startswith("error: there is no complete backup 'yesterday'; the newest folders: ")
    assert manifest.identifier in error or error.count("Z-") == 5


@pytest.mark.extended
def test_a_restore_that_was_interrupted_is_not_put_in_place_and_is_dropped_by_the_next_drill(
    backed: Backed, manifest: Manifest
) -> None:
    database = backed.new_database()
    database.refresh_credentials()
    with scratch(database) as made:
        for name in RESTORED.values():
            made.create(name)
        with pytest.raises(RefusedError, match="another restore is under way"):
            switch(database)
    wait_until(lambda: not _connections(backed), seconds=120)
    with pytest.raises(RefusedError, match="restored_mlflow and restored_mlflow_auth was interrupted; repeat it"):
        switch(database)
    report = backed.drill(backup=manifest.identifier)
    assert {f"dropped {name}, which an interrupted drill left" for name in RESTORED.values()} <= {*report.notes}
    assert backed.databases() == set()


@pytest.mark.extended
def test_a_restored_database_replaces_the_one_that_serves(
    server: MlflowServer, backed: Backed, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disaster: somebody has dropped a table. The server runs on, and its clients see the restored runs."""
    for name, value in {**backed.services.credentials(TEAMS[0]), "MLFLOW_ENABLE_WORKSPACES": "true"}.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name(f"backed-{TEAMS[0]}")
    assert experiment is not None
    backed.services.query("DROP TABLE tags CASCADE")
    with pytest.raises(MlflowException):
        client.search_runs([experiment.experiment_id])
    with pytest.raises(RefusedError, match="there is no database restored_mlflow and no restored_mlflow_auth"):
        switch(backed.new_database())
    report = backed.drill(backup=manifest.identifier, keeps=True)
    assert report.problems == ()
    assert backed.databases() == {*RESTORED.values()}
    with pytest.raises(RefusedError, match=r"an earlier restore has kept it: .* discard restored_mlflow`"):
        backed.drill(backup=manifest.identifier, keeps=True)
    assert backed.drill(backup=manifest.identifier).problems == ()
    assert backed.databases() == {*RESTORED.values()}
    switch(backed.new_database())
    [run] = client.search_runs([experiment.experiment_id])
    assert "empty" in run.data.tags
    assert client.create_experiment("after-the-restore") not in {"", experiment.experiment_id}
    kept = backed.databases()
    assert {name.rpartition("_")[0] for name in kept} == {f"replaced_{RUNS}", f"replaced_{ACCOUNTS}"}
    with pytest.raises(RefusedError, match="'mlflow' is not a replaced or restored database"):
        discard(backed.new_database(), RUNS)
    for name in kept:
        discard(backed.new_database(), name)
    assert backed.databases() == set()


BUSY = "drill_busy"
_AUTOVACUUM = "SELECT datname FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"


@pytest.mark.timeout(180)
def test_a_database_is_dropped_while_autovacuum_and_a_connection_are_in_it(backed: Backed) -> None:
    services = backed.services
    database = backed.new_database()
    database.refresh_credentials()
    with scratch(database) as made:
        made.create(BUSY)
        with _vacuumed_slowly(services), closing(database.connect(BUSY)) as connection, connection.cursor() as cursor:
            wait_until(lambda: (BUSY,) in services.administer(_AUTOVACUUM))
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


OLDER, MIGRATED = "drill_older", "drill_restored"
_BACK = 12
"""Revisions between the older schema and that of the installed version."""


@pytest.mark.extended
def test_a_backup_of_an_older_schema_is_restored_at_its_revision_and_migrated(backed: Backed, tmp_path: Path) -> None:
    head, older = _revisions()
    check_revision(RUNS, older)
    database = backed.new_database()
    database.refresh_credentials()
    folder = Backups(backed.s3, backed.services.bucket).new(datetime.now(UTC))
    with scratch(database) as made:
        made.create(OLDER)
        migrate_schema(RUNS, database.uri(OLDER), older)
        rows = (
            "INSERT INTO experiments (name, lifecycle_stage) SELECT 'e' || i, 'active' FROM generate_series(1, 50) AS i"
        )
        backed.services.execute_in(OLDER, rows)
        with snapshot(database, RUNS, name=OLDER) as cursor:
            entry = dump(cursor, RUNS, folder, work=tmp_path)
        assert entry.revision == older
        made.create(MIGRATED)
        restore(database, entry, MIGRATED, folder, work=tmp_path)
        with snapshot(database, RUNS, name=MIGRATED) as cursor:
            assert list(differences(cursor, entry)) == []
        migrate_schema(RUNS, database.uri(MIGRATED))
        with snapshot(database, RUNS, name=MIGRATED) as cursor:
            assert revision_of(cursor, version_table=VERSION_TABLES[RUNS]) == head
            cursor.execute("SELECT count(*) FROM experiments WHERE name LIKE 'e%'")
            assert cursor.fetchall() == [(50,)]
        for name in (OLDER, MIGRATED):
            made.drop(name)


def _revisions() -> tuple[str, str]:
    """That of the installed version of MLflow, and an older one."""
    script = ScriptDirectory.from_config(runs_schema._get_alembic_config(""))
    revisions = [one.revision for one in script.walk_revisions()]
    return revisions[0], revisions[_BACK]
