"""Take a backup."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..database import Database
from ..environment import BackupSettings
from ..names import ACCOUNTS, RUNS
from .artifacts import current_versions
from .checkpoints import checkpoints
from .dump import dump, snapshot
from .folder import BackupFolder, Backups
from .lines import Line, write_lines
from .manifest import Listing, Manifest
from .report import REPORT, size_text

ARTIFACTS_FILE = "artifacts.jsonl.gz"
CHECKPOINTS_FILE = "checkpoints.jsonl.gz"


def take_backup(settings: BackupSettings, database: Database, s3: Any) -> Manifest:  # noqa: ANN401 - boto3 has no types
    """Back up both databases, and list artifacts and checkpoints. MLflow's server may run meanwhile.

    Each database is read as of one moment, the accounts a little later than the runs. Artifacts are listed last, so the list has those of
    every run in the backup.

    Raises:
        Exception: of botocore or psycopg2. What was written remains, without a manifest; the bucket's lifecycle removes it.
    """
    begin, now = time.monotonic(), datetime.now(UTC)
    database.refresh_credentials()
    folder = Backups(s3, settings.bucket).new(now)
    print(f"backup {folder.identifier}: writing to bucket {settings.bucket}", flush=True)
    with tempfile.TemporaryDirectory(prefix="backup-") as name:
        work = Path(name)
        with snapshot(database, RUNS) as cursor:
            runs = dump(cursor, RUNS, folder, work=work)
            known = _listing(folder, work, CHECKPOINTS_FILE, checkpoints(cursor))
        with snapshot(database, ACCOUNTS) as cursor:
            accounts = dump(cursor, ACCOUNTS, folder, work=work)
        artifacts = _listing(folder, work, ARTIFACTS_FILE, current_versions(s3, settings.bucket))
    manifest = Manifest(
        identifier=folder.identifier,
        created=now,
        mlflow=version("mlflow"),
        databases=(runs, accounts),
        artifacts=artifacts,
        checkpoints=known,
    )
    folder.commit(manifest)
    _describe(manifest, seconds=time.monotonic() - begin)
    return manifest


def _listing(folder: BackupFolder, work: Path, name: str, lines: Iterable[Line]) -> Listing:
    file = work / name
    entries, size = write_lines(file, lines)
    return Listing(file=folder.put(file, name), entries=entries, bytes=size)


def _describe(manifest: Manifest, *, seconds: float) -> None:
    for database in manifest.databases:
        stored = sum(table.file.bytes for table in database.tables)
        print(
            f"database {database.name}: {len(database.tables)} tables, {database.rows:,} rows, revision "
            f"{database.revision}, {size_text(database.bytes)} on disk, {size_text(stored)} in the backup"
        )
    artifacts, checkpoints_ = manifest.artifacts, manifest.checkpoints
    print(f"artifacts: {artifacts.entries:,} versions, {size_text(artifacts.bytes)}")
    print(f"checkpoints: {checkpoints_.entries:,} known, {size_text(checkpoints_.bytes)}")
    print(f"backup {manifest.identifier} is complete after {seconds:.1f} s")
    outcome = {
        "backup": manifest.identifier,
        "created": manifest.created.isoformat(),
        "seconds": round(seconds, 1),
        "rows": {database.name: database.rows for database in manifest.databases},
        "artifacts": artifacts.entries,
        "checkpoints": checkpoints_.entries,
    }
    print(f"{REPORT}{json.dumps(outcome)}", flush=True)
