"""A backup of an older version of MLflow, whose schema had other tables and columns."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from alembic.script import ScriptDirectory
from mlflow.store.db import utils as runs_schema

from platform_charts.images.mlflow_server.backup.dump import dump, snapshot
from platform_charts.images.mlflow_server.backup.folder import Backups
from platform_charts.images.mlflow_server.backup.restore import differences, restore
from platform_charts.images.mlflow_server.backup.schema import check_revision, migrate_schema
from platform_charts.images.mlflow_server.backup.scratch import scratch
from platform_charts.images.mlflow_server.backup.tables import VERSION_TABLES, revision_of
from platform_charts.images.mlflow_server.names import RUNS
from tests.platform_charts.images.mlflow_server.backups import Backed

OLDER, RESTORED = "drill_older", "drill_restored"
_BACK = 12
"""Revisions between the older schema and that of the installed version."""


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
        made.create(RESTORED)
        restore(database, entry, RESTORED, folder, work=tmp_path)
        with snapshot(database, RUNS, name=RESTORED) as cursor:
            assert list(differences(cursor, entry)) == []
        migrate_schema(RUNS, database.uri(RESTORED))
        with snapshot(database, RUNS, name=RESTORED) as cursor:
            assert revision_of(cursor, version_table=VERSION_TABLES[RUNS]) == head
            cursor.execute("SELECT count(*) FROM experiments WHERE name LIKE 'e%'")
            assert cursor.fetchall() == [(50,)]
        for name in (OLDER, RESTORED):
            made.drop(name)


def _revisions() -> tuple[str, str]:
    """That of the installed version of MLflow, and an older one."""
    script = ScriptDirectory.from_config(runs_schema._get_alembic_config(""))
    revisions = [one.revision for one in script.walk_revisions()]
    return revisions[0], revisions[_BACK]
