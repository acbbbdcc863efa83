"""Backups and drills of the real services, and what the tests plant in them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mlflow import MlflowClient

from platform_charts.images.mlflow_server.backup.drill import restore_drill
from platform_charts.images.mlflow_server.backup.folder import BackupFolder
from platform_charts.images.mlflow_server.backup.manifest import DatabaseEntry, Manifest, TableEntry
from platform_charts.images.mlflow_server.backup.report import DrillReport
from platform_charts.images.mlflow_server.backup.take import take_backup
from platform_charts.images.mlflow_server.database import Database
from platform_charts.images.mlflow_server.environment import BackupSettings, DrillSettings
from platform_charts.images.mlflow_server.names import RUNS
from tests.platform_charts.images.mlflow_server.platform import Platform

CHECKPOINT = {
    "mlflow.model.isExternal": "true",
    "checkpoint.path": "/mnt/runs/first/checkpoints/step-00000010",
    "checkpoint.step": "10",
    "checkpoint.bytes": "4096",
    "checkpoint.manifest_sha256": "ab" * 32,
}
"""Tags that the trainer gives the logged model of a checkpoint."""

_MADE_BY_TESTS = "SELECT datname FROM pg_database WHERE datname ~ '^(drill|restored|replaced)_'"


class Backed:
    """Services with something to back up."""

    def __init__(self, services: Platform) -> None:
        self.services = services
        self.s3 = services.client("s3")

    def new_database(self) -> Database:
        """The server, with a password file of its own."""
        return Database(self.services.database_settings, self.services.client("secretsmanager"))

    def back_up(self) -> Manifest:
        """Take a backup."""
        return take_backup(BackupSettings(bucket=self.services.bucket), self.new_database(), self.s3)

    def drill(self, *, backup: str | None = None, keeps: bool = False, storage_bytes: int = 2**40) -> DrillReport:
        """Run a drill; by default of the newest backup."""
        settings = DrillSettings(
            bucket=self.services.bucket, backup=backup, keeps=keeps, artifacts_to_read=3, storage_bytes=storage_bytes
        )
        return restore_drill(settings, self.new_database(), self.s3)

    def folder(self, manifest: Manifest) -> BackupFolder:
        """The files of a backup."""
        return BackupFolder(self.s3, self.services.bucket, manifest.identifier)

    def rows(self, manifest: Manifest, table: str, work: Path) -> list[str]:
        """The lines of a table's file."""
        entry = table_of(runs_of(manifest), table)
        file = work / table
        self.folder(manifest).get(entry.file, file)
        return gzip.decompress(file.read_bytes()).decode().splitlines()

    def erase(self, prefix: str) -> None:
        """Remove all versions of what begins with this from the bucket."""
        bucket = self.services.bucket
        for entry in self.s3.list_object_versions(Bucket=bucket, Prefix=prefix)["Versions"]:
            self.s3.delete_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])

    def databases(self) -> set[str]:
        """Databases that a drill or a restore has made."""
        return {name for (name,) in self.services.administer(_MADE_BY_TESTS)}

    def drop_databases(self) -> None:
        """Drop them."""
        for name in self.databases():
            self.services.administer(f"DROP DATABASE {name} WITH (FORCE)")


def runs_of(manifest: Manifest) -> DatabaseEntry:
    """The database of runs in a backup."""
    return next(entry for entry in manifest.databases if entry.name == RUNS)


def table_of(entry: DatabaseEntry, name: str) -> TableEntry:
    """A table of a database in a backup."""
    return next(table for table in entry.tables if table.name == name)


def fill(client: MlflowClient, folder: Path, *, name: str) -> str:
    """Record a run with everything that the trainer records; returns its ID."""
    experiment = client.create_experiment(name)
    run = client.create_run(experiment).info.run_id
    client.log_param(run, "text", "tab\there, back\\slash, quote', ünïcode, \\N and\nnew line")
    client.set_tag(run, "empty", "")
    for step, value in enumerate((1.0, 1e-17, 2.0 / 3.0, float("nan"), float("inf"))):
        client.log_metric(run, "loss", value, step=step)
    client.log_text(run, f"of {name}", "notes.txt")
    model = client.create_logged_model(experiment, "model", run)
    notes = folder / "MLmodel"
    notes.write_text("flavors: {}\n", encoding="utf-8")
    client.log_model_artifact(model.model_id, str(notes))
    client.finalize_logged_model(model.model_id, "READY")
    client.create_registered_model(name)
    client.create_model_version(name, f"models:/{model.model_id}", run_id=run, model_id=model.model_id)
    checkpoint = client.create_logged_model(experiment, "step-00000010", run, CHECKPOINT)
    client.finalize_logged_model(checkpoint.model_id, "READY")
    return str(run)


@contextmanager
def writer(services: Platform, run: str) -> Iterator[list[int]]:
    """Add a param and a tag to a run in each transaction, as fast as the database takes them, until the block ends.

    Yields:
        the number of transactions so far, as the only element.
    """
    done, is_over = [0], threading.Event()

    def write() -> None:
        with closing(services.database.connect(RUNS)) as connection:
            while not is_over.is_set():
                with connection, connection.cursor() as cursor:
                    key = f"written-{done[0]}"
                    cursor.execute("INSERT INTO params (key, value, run_uuid) VALUES (%s, 'x', %s)", (key, run))
                    cursor.execute("INSERT INTO tags (key, value, run_uuid) VALUES (%s, 'x', %s)", (key, run))
                done[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        is_over.set()
        thread.join()
