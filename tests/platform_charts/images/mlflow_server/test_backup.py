"""Backups of a server with two teams, in its database and its bucket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platform_charts.images.mlflow_server.backup.artifacts import check_artifacts, current_versions
from platform_charts.images.mlflow_server.backup.errors import DamagedError
from platform_charts.images.mlflow_server.backup.lines import read_lines
from platform_charts.images.mlflow_server.backup.manifest import Manifest
from platform_charts.images.mlflow_server.backup.report import MOST_PROBLEMS, Problems
from platform_charts.images.mlflow_server.backup.restore import differences, restore
from platform_charts.images.mlflow_server.backup.scratch import scratch
from platform_charts.images.mlflow_server.backup.tables import SESSION
from platform_charts.images.mlflow_server.names import RUNS
from tests.platform_charts.images.mlflow_server.backups import CHECKPOINT, Backed, runs_of, table_of
from tests.platform_charts.images.mlflow_server.platform import TEAMS

COMPARED = "drill_compared"
"""Database with a restored backup, in which the tests plant differences."""


@pytest.fixture(scope="module")
def restored(backed: Backed, manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cursor of a restored database of runs."""
    database = backed.new_database()
    database.refresh_credentials()
    with scratch(database) as made:
        made.create(COMPARED)
        work = tmp_path_factory.mktemp("restored")
        restore(database, runs_of(manifest), COMPARED, backed.folder(manifest), work=work)
        with closing(database.connect(COMPARED, options=SESSION)) as connection, connection.cursor() as cursor:
            yield cursor
        made.drop(COMPARED)


def test_a_backup_lists_artifacts_and_checkpoints(backed: Backed, manifest: Manifest, tmp_path: Path) -> None:
    folder, artifacts, checkpoints = backed.folder(manifest), tmp_path / "artifacts", tmp_path / "checkpoints"
    folder.get(manifest.artifacts.file, artifacts)
    folder.get(manifest.checkpoints.file, checkpoints)
    keys = {line["key"] for line in read_lines(artifacts)}
    for team in TEAMS:
        assert any(key.startswith(f"mlflow/workspaces/{team}/") and key.endswith("notes.txt") for key in keys)
    known = [line for line in read_lines(checkpoints) if line["path"] == CHECKPOINT["checkpoint.path"]]
    assert sorted(line["workspace"] for line in known) == sorted(TEAMS)
    assert {(line["step"], line["bytes"], line["manifest_sha256"]) for line in known} == {(10, 4096, "ab" * 32)}


def test_tags_that_users_set_to_anything_do_not_end_a_backup(backed: Backed, tmp_path: Path) -> None:
    values = {"step": "ten", "bytes": "9" * 5000, "manifest_sha256": ""}
    for name, value in values.items():
        _set_tag(backed, f"checkpoint.{name}", value)
    try:
        manifest = backed.back_up()
        backed.folder(manifest).get(manifest.checkpoints.file, tmp_path / "checkpoints")
        found = [(line["step"], line["bytes"]) for line in read_lines(tmp_path / "checkpoints")]
        assert len(found) >= len(TEAMS)
        assert {*found} == {(0, 0)}
        assert manifest.checkpoints.bytes == 0
    finally:
        for name in values:
            _set_tag(backed, f"checkpoint.{name}", CHECKPOINT[f"checkpoint.{name}"])


def _set_tag(backed: Backed, key: str, value: str) -> None:
    change = f"UPDATE logged_model_tags SET tag_value = '{value}' WHERE tag_key = '{key}'"  # noqa: S608
    backed.services.execute_in(RUNS, change)


def test_a_damaged_manifest_is_refused(manifest: Manifest) -> None:
    data = manifest.encode()
    assert Manifest.decode(data) == manifest
    with pytest.raises(DamagedError, match="does not match its checksum"):
        Manifest.decode(data.replace(b'"rows": ', b'"rows": 1', 1))
    with pytest.raises(DamagedError, match="cannot be read"):
        Manifest.decode(data[:-100])


def test_what_is_restored_equals_what_was_backed_up(restored: Any, manifest: Manifest) -> None:  # noqa: ANN401 - psycopg2 has no types
    assert table_of(runs_of(manifest), "metrics").contents.rows >= 10
    assert list(differences(restored, runs_of(manifest))) == []


def test_planted_differences_are_found(restored: Any, manifest: Manifest) -> None:  # noqa: ANN401
    entry = runs_of(manifest)
    for plant, said in (
        ("UPDATE metrics SET value = value * (1 + 1e-15) WHERE key = 'loss' AND step = 2", "metrics has .* rows"),
        ("UPDATE params SET value = value || ' ' WHERE key = 'text'", "the table params has .* rows with digest"),
        ("DELETE FROM tags WHERE key = 'empty'", "the table tags has .* rows with digest"),
        ("ALTER TABLE tags RENAME TO other_tags", "the table other_tags is not in the backup"),
        ("ALTER TABLE tags ADD COLUMN more int", "the table tags has the columns .*more"),
        ("UPDATE alembic_version SET version_num = 'x'", "schema revision x instead of"),
    ):
        restored.execute(plant)
        found = list(differences(restored, entry))
        restored.connection.rollback()
        assert re.search(said, found[0]), plant
    extra = replace(entry.tables[0], name="more")
    found = list(differences(restored, replace(entry, tables=(*entry.tables, extra), sequences={"x_seq": 7})))
    assert found[0] == "mlflow: the table more is missing"
    assert found[1].endswith("instead of {'x_seq': 7}")


def test_an_artifact_version_that_is_gone_or_reads_differently_is_found_and_an_older_one_is_not(backed: Backed) -> None:
    bucket = backed.services.bucket
    for name in ("deleted", "overwritten", "hidden"):
        backed.s3.put_object(Bucket=bucket, Key=f"mlflow/planted/{name}", Body=b"first")
    wanted = list(current_versions(backed.s3, bucket))
    [version] = [line["version"] for line in wanted if line["key"] == "mlflow/planted/deleted"]
    backed.s3.delete_object(Bucket=bucket, Key="mlflow/planted/deleted", VersionId=version)
    backed.s3.put_object(Bucket=bucket, Key="mlflow/planted/overwritten", Body=b"second")
    backed.s3.delete_object(Bucket=bucket, Key="mlflow/planted/hidden")
    problems = Problems()
    found = check_artifacts(backed.s3, bucket, wanted, problems, sample=len(wanted))
    assert problems.named == [f"artifact mlflow/planted/deleted, version {version}: deleted"]
    assert (found.listed, found.read) == (len(wanted), len(wanted) - 1)
    # Each is read, and after so many problems the others are only counted.
    [kept] = [line for line in wanted if line["key"] == "mlflow/planted/overwritten"]
    other = [{**kept, "etag": "0" * 32}] * (MOST_PROBLEMS + 5)
    problems = Problems()
    check_artifacts(backed.s3, bucket, other, problems, sample=0)
    place = f"artifact {kept['key']}, version {kept['version']}: {kept['bytes']} bytes"
    assert problems.named[0].startswith(place)
    assert (len(problems.named), problems.count) == (MOST_PROBLEMS, MOST_PROBLEMS + 5)
