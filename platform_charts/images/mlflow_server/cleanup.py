"""Delete for good what was deleted long ago, and say how large the database is.

It deletes files before rows, so that an interrupted run can be repeated. The bucket keeps deleted objects as noncurrent versions for the
days of its lifecycle.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from typing import Any

from mlflow.store.tracking.sqlalchemy_workspace_store import WorkspaceAwareSqlAlchemyStore
from mlflow.utils.workspace_context import WorkspaceContext

from .database import Database
from .environment import CleanupSettings
from .expired import Expired, find_expired
from .names import ARTIFACT_FOLDER, RUNS
from .workspaces import workspaces_enabled

_GIB = 2**30
_DAY_MILLISECONDS = 86_400_000
FULL_SHARE = 0.8
"""Share of the database's largest storage at which the cleanup fails, so that someone looks while there is room."""

_LARGEST_TABLES = """
SELECT c.relname, c.reltuples::bigint, pg_total_relation_size(c.oid)
FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
ORDER BY 3 DESC LIMIT 3
"""


def clean_up(settings: CleanupSettings, database: Database, s3: Any) -> int:  # noqa: ANN401 - boto3 has no types
    """Delete what has expired, or with `is_preview` only list it.

    Returns:
        the exit status: 1 if the database has almost filled the storage that it may grow to.

    Raises:
        Exception: of botocore, psycopg2 or MLflow; what was deleted before stays deleted.
    """
    database.refresh_credentials()
    before = int(time.time() * 1000) - settings.older_than_days * _DAY_MILLISECONDS
    with closing(database.connect(RUNS)) as connection, connection.cursor() as cursor:
        expired = find_expired(cursor, before=before)
        connection.rollback()  # ends the transaction: the deletions below use other connections
        if expired and not settings.is_preview:
            with workspaces_enabled():
                _Deletion(settings, database, s3).delete(expired)
        else:
            for item in expired:
                print(f"would delete the {item.kind} {item.identifier} of workspace {item.workspace}")
        counts = Counter(item.kind for item in expired)
        found = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items()) or "nothing"
        verb = "would delete" if settings.is_preview else "deleted"
        print(f"{verb} {found} that users had deleted more than {settings.older_than_days} days ago", flush=True)
        return _report_size(cursor, settings)


class _Deletion:
    def __init__(self, settings: CleanupSettings, database: Database, s3: Any) -> None:  # noqa: ANN401
        self._bucket = settings.bucket
        self._s3 = s3
        self._store = WorkspaceAwareSqlAlchemyStore(database.uri(RUNS), "mlflow-artifacts:/")

    def delete(self, expired: list[Expired]) -> None:
        """Delete files and rows, and print a line for each."""
        for item in expired:
            files = self._delete_files(item) if item.artifacts else 0
            with WorkspaceContext(item.workspace):
                self._delete_rows(item)
            print(
                f"deleted the {item.kind} {item.identifier} of workspace {item.workspace}, with {files} files",
                flush=True,
            )

    def _delete_rows(self, item: Expired) -> None:
        match item.kind:
            case "run":
                self._store._hard_delete_run(item.identifier)  # noqa: SLF001 - `mlflow gc` is its only public caller
            case "logged model":
                self._store._hard_delete_logged_model(item.identifier)  # noqa: SLF001
            case "experiment":
                self._store._hard_delete_experiment(item.identifier)  # noqa: SLF001

    def _delete_files(self, item: Expired) -> int:
        prefix = artifact_prefix(item)
        if prefix is None:
            print(f"keeping the files of the {item.kind} {item.identifier}: {item.artifacts} is not in the bucket")
            return 0
        count = 0
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            keys = [
                {"Key": entry["Key"]} for entry in page.get("Contents", ())
            ]  # at most as many as may be deleted at once
            answer = self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": keys}) if keys else {}
            if errors := answer.get("Errors"):
                raise RuntimeError(f"S3 did not delete {len(errors)} objects, the first one: {errors[0]}")
            count += len(keys)
        return count


def artifact_prefix(item: Expired) -> str | None:
    """Prefix of the keys of its files; None if they are elsewhere, or if the location is not its own.

    The server stores `mlflow-artifacts:/x` as `x` below `ARTIFACT_FOLDER`.
    """
    scheme, _, path = item.artifacts.partition(":/")
    parts = path.strip("/").split("/")
    if scheme != "mlflow-artifacts" or item.identifier not in parts:
        return None
    return "/".join((ARTIFACT_FOLDER, *parts, ""))


def _report_size(cursor: Any, settings: CleanupSettings) -> int:  # noqa: ANN401
    cursor.execute("SELECT pg_database_size(current_database())")
    [(size,)] = cursor.fetchall()
    cursor.execute(_LARGEST_TABLES)
    tables = "; ".join(f"{name} {max(0, rows):,} rows, {used / _GIB:.3f} GiB" for name, rows, used in cursor.fetchall())
    share, limit = size / settings.storage_bytes, f"{settings.storage_bytes / _GIB:g} GiB"
    print(f"database: {size / _GIB:.3f} of {limit} ({share:.1%}); {tables}", flush=True)
    if share < FULL_SHARE:
        return 0
    print(
        f"error: the database has {share:.0%} of the {limit} that it may grow to; raise "
        "database.max_allocated_gib, or delete runs in MLflow and shorten mlflow.delete_after_days",
        file=sys.stderr,
    )
    return 1
