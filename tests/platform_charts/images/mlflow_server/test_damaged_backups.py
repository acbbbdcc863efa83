"""Each kind of damage to a backup fails the drill, which names what is damaged and leaves no database."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from platform_charts.images.mlflow_server.backup.drill import RESTORED
from platform_charts.images.mlflow_server.backup.errors import DamagedError
from platform_charts.images.mlflow_server.backup.manifest import MANIFEST_FILE, Manifest, StoredFile
from platform_charts.images.mlflow_server.names import BACKUP_FOLDER, RUNS
from tests.platform_charts.images.mlflow_server.backups import Backed, runs_of, table_of

Change = Callable[[bytes], bytes]


class Files:
    """The files of a backup, changed behind its back.

    Args:
        backed: the services.
        manifest: the backup.
    """

    def __init__(self, backed: Backed, manifest: Manifest) -> None:
        self._place = {"Bucket": backed.services.bucket}
        self._s3 = backed.s3
        self._prefix = f"{BACKUP_FOLDER}/{manifest.identifier}/"

    def change(self, name: str, change: Change) -> bytes:
        """Replace the content of a file; returns the new one."""
        place = {**self._place, "Key": f"{self._prefix}{name}"}
        data = change(self._s3.get_object(**place)["Body"].read())
        self._s3.put_object(**place, Body=data)
        return data

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._s3.delete_object(**self._place, Key=f"{self._prefix}{name}")

    def forge(self, stored: StoredFile, change: Change) -> StoredFile:
        """Change the lines of a file, and what the manifest says of it."""
        data = self.change(stored.name, lambda old: gzip.compress(change(gzip.decompress(old))))
        return replace(stored, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def truncated(data: bytes) -> bytes:
    """Without the end."""
    return data[:-10]


def flipped(data: bytes) -> bytes:
    """With one other byte."""
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.extended
def test_a_damaged_table_fails_the_drill_by_name(backed: Backed, tmp_path: Path) -> None:
    manifest = backed.back_up()
    file = table_of(runs_of(manifest), "params").file
    files = Files(backed, manifest)
    files.change(file.name, flipped)
    report = backed.drill(backup=manifest.identifier)
    assert not report.passed
    assert f"{file.name} does not match its sha256" in report.problems[0]
    assert backed.databases() == set()
    files.change(file.name, truncated)
    with pytest.raises(DamagedError, match=f"{file.name} has {file.bytes - 10} bytes instead of {file.bytes}"):
        backed.folder(manifest).get(file, tmp_path / "file")
    files.delete(file.name)
    with pytest.raises(DamagedError, match=f"{file.name} is missing"):
        backed.folder(manifest).get(file, tmp_path / "file")


@pytest.mark.extended
def test_a_changed_row_a_lost_checkpoint_and_a_damaged_list_are_all_named(backed: Backed) -> None:
    """The files of the first two are what the manifest says: only what was restored differs from what was backed up."""
    manifest = backed.back_up()
    files = Files(backed, manifest)
    runs = runs_of(manifest)
    params = table_of(runs, "params")
    changed = replace(params, file=files.forge(params.file, lambda rows: rows.replace(b"here", b"hers", 1)))
    tables = tuple(changed if table == params else table for table in runs.tables)
    lost = files.forge(manifest.checkpoints.file, lambda lines: b"".join(lines.splitlines(keepends=True)[1:]))
    forged = replace(
        manifest,
        databases=(replace(runs, tables=tables), *manifest.databases[1:]),
        checkpoints=replace(manifest.checkpoints, file=lost),
    )
    backed.folder(manifest).commit(forged)
    files.change(manifest.artifacts.file.name, truncated)
    report = backed.drill(backup=manifest.identifier, keeps=True)
    rows = params.contents.rows
    table, *_, artifacts = report.problems
    assert table.startswith(f"{RUNS}: the table params has {rows:,} rows with digest")
    assert any(problem.startswith("checkpoints: ") for problem in report.problems)
    assert artifacts.startswith(f"{manifest.artifacts.file.name} has ")
    assert (report.passed, report.artifacts) == (False, 0)
    assert backed.databases() == set()


@pytest.mark.extended
def test_databases_that_are_as_they_were_are_kept_although_an_artifact_is_gone(backed: Backed) -> None:
    """As where they are restored beside another bucket, whose versions have other names."""
    backed.s3.put_object(Bucket=backed.services.bucket, Key="mlflow/planted/gone", Body=b"x")
    manifest = backed.back_up()
    backed.erase("mlflow/planted/gone")
    try:
        report = backed.drill(backup=manifest.identifier, keeps=True)
        assert (report.passed, report.problem_count) == (False, 1)
        assert report.problems[0].startswith("artifact mlflow/planted/gone, version ")
        assert any(note.startswith("kept restored_mlflow") for note in report.notes)
        assert backed.databases() == {*RESTORED.values()}
    finally:
        backed.drop_databases()


def test_a_manifest_that_is_damaged_or_of_another_backup_is_refused_by_name(backed: Backed) -> None:
    other, manifest = backed.back_up(), backed.back_up()
    Files(backed, manifest).change(MANIFEST_FILE, truncated)
    try:
        with pytest.raises(DamagedError, match=f"backup {manifest.identifier} is damaged: .* restore another one"):
            backed.drill(backup=manifest.identifier)  # not the newest: the other one may be of the same second
        Files(backed, manifest).change(MANIFEST_FILE, lambda _: other.encode())
        with pytest.raises(DamagedError, match=f"its manifest is that of {other.identifier}"):
            backed.drill(backup=manifest.identifier)
    finally:
        backed.folder(manifest).commit(manifest)
