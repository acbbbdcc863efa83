"""Restore a backup beside the databases that serve, and compare it with what it was made of.

With `keeps` it is the first half of a real restore: the restored databases stay, under other names, until `switch` puts them in place.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psycopg2

from ..database import Database
from ..environment import DrillSettings
from ..names import ACCOUNTS, RUNS
from .artifacts import check_artifacts
from .checkpoints import checkpoints
from .dump import snapshot
from .errors import BackupError
from .folder import BackupFolder, Backups
from .lines import Line, read_lines
from .manifest import Listing, Manifest
from .report import DatabaseReport, DrillReport, Problems
from .restore import differences, restore
from .schema import check_revision, count_by_mlflow, count_experiments_with_runs, migrate_schema
from .scratch import Scratch, scratch
from .termination import Termination, terminable

SCRATCH: Mapping[str, str] = {RUNS: f"drill_{RUNS}", ACCOUNTS: f"drill_{ACCOUNTS}"}
"""Names of a drill's databases, by the original's."""

RESTORED: Mapping[str, str] = {RUNS: f"restored_{RUNS}", ACCOUNTS: f"restored_{ACCOUNTS}"}
"""Names of restored databases that are kept."""

_REMEDY_OF_FOREIGN = "no drill has made it: rename or drop it, if nobody needs it"
_REMEDY_OF_KEPT = (
    "an earlier restore has kept it: put it in place with `python -m mlflow_server switch`, or drop it with "
    "`python -m mlflow_server discard {name}`"
)


def restore_drill(settings: DrillSettings, database: Database, s3: Any) -> DrillReport:  # noqa: ANN401 - boto3 has no types
    """Restore, compare, and drop what was restored, also after SIGTERM; with `keeps`, keep it unless something differs.

    Raises:
        BackupError: there is no such backup, this MLflow does not know its schema, or another drill is under way.
        Exception: of botocore or psycopg2.
    """
    begin, now = time.monotonic(), datetime.now(UTC)
    database.refresh_credentials()
    folder, manifest, notes = _chosen(Backups(s3, settings.bucket), settings.backup)
    print(f"restoring backup {manifest.identifier}", flush=True)
    for entry in manifest.databases:
        check_revision(entry.name, entry.revision)
    problems = Problems()
    with (
        terminable() as termination,
        scratch(database) as made,
        tempfile.TemporaryDirectory(prefix="drill-") as work,
    ):
        drill = _Drill(settings, database, folder, manifest, problems, work=Path(work), termination=termination)
        notes += drill.clear(made)
        made.check_room(manifest.database_bytes, storage=settings.storage_bytes)
        drill.run(made)
        if drill.is_kept:
            notes.append(f"kept {', '.join(RESTORED.values())}; `python -m mlflow_server switch` puts them in place")
        artifacts = check_artifacts(
            s3, settings.bucket, drill.listed(manifest.artifacts), problems, sample=settings.artifacts_to_read
        )
    return DrillReport(
        backup=manifest.identifier,
        age_seconds=(now - manifest.created).total_seconds(),
        restore_seconds=drill.restore_seconds,
        total_seconds=time.monotonic() - begin,
        databases=tuple(
            DatabaseReport(name=one.name, tables=len(one.tables), rows=one.rows, revision=one.revision)
            for one in manifest.databases
        ),
        mlflow=drill.found,
        artifacts=artifacts.listed,
        artifacts_read=artifacts.read,
        checkpoints=manifest.checkpoints.entries,
        problems=tuple(problems.named),
        problem_count=problems.count,
        notes=tuple(notes),
    )


def _chosen(backups: Backups, identifier: str | None) -> tuple[BackupFolder, Manifest, list[str]]:
    """The backup to restore, and notes about those that are not complete."""
    if identifier is not None:
        return *backups.open(identifier), []
    folder, manifest, incomplete = backups.newest()
    notes = [f"backup {one} has no manifest: it is under way, or was interrupted" for one in incomplete]
    return folder, manifest, notes


class _Drill:
    """One drill.

    Attributes:
        is_kept: the restored databases stay.
        restore_seconds: time until all rows were loaded; until the failure if it failed.
        found: what MLflow's own stores found.
    """

    def __init__(
        self,
        settings: DrillSettings,
        database: Database,
        folder: BackupFolder,
        manifest: Manifest,
        problems: Problems,
        *,
        work: Path,
        termination: Termination,
    ) -> None:
        self._settings = settings
        self._database = database
        self._folder = folder
        self._manifest = manifest
        self._problems = problems
        self._work = work
        self._termination = termination
        self._names = RESTORED if settings.keeps else SCRATCH
        self.is_kept = False
        self.restore_seconds = 0.0
        self.found: dict[str, int] = {}

    def clear(self, made: Scratch) -> list[str]:
        """Drop what interrupted drills have left; returns a note for each.

        Raises:
            RefusedError: another database has a name that this drill needs.
        """
        names = sorted({*SCRATCH.values(), *RESTORED.values()})
        notes = [f"dropped {name}, which an interrupted drill left" for name in names if made.remove_left_over(name)]
        remedy = _REMEDY_OF_KEPT if self._settings.keeps else _REMEDY_OF_FOREIGN
        for name in self._names.values():
            made.check_free(name, remedy=remedy.format(name=name))
        return notes

    def run(self, made: Scratch) -> None:
        """Restore and compare; what fails is a problem, and what was restored is dropped or kept."""
        begin = time.monotonic()
        try:
            try:
                for entry in self._manifest.databases:
                    made.create(self._names[entry.name])
                    restore(self._database, entry, self._names[entry.name], self._folder, work=self._work)
            finally:
                self.restore_seconds = time.monotonic() - begin
            self._compare()
            self._open_with_mlflow()
        except (BackupError, psycopg2.Error) as error:
            # psycopg2 turns what ends the reading of a file, such as SIGTERM, into an error of the server.
            self._termination.check()
            self._problems.add(f"backup {self._manifest.identifier} cannot be restored: {str(error).strip()}")
        finally:
            self.is_kept = self._settings.keeps and bool(self.found) and not self._problems.count
            if self.is_kept:
                made.keep(self._names.values())
            else:
                for name in self._names.values():
                    made.drop(name)

    def listed(self, listing: Listing) -> Iterator[Line]:
        """The lines of a list of the backup; none, and a problem, if it is damaged."""
        file = self._work / listing.file.name
        try:
            self._folder.get(listing.file, file)
        except BackupError as error:
            self._problems.add(str(error))
            return
        yield from read_lines(file)

    def _compare(self) -> None:
        for entry in self._manifest.databases:
            with snapshot(self._database, entry.name, name=self._names[entry.name]) as cursor:
                self._problems.add(*differences(cursor, entry))
        with snapshot(self._database, RUNS, name=self._names[RUNS]) as cursor:
            for wanted, found in zip_longest(self.listed(self._manifest.checkpoints), checkpoints(cursor)):
                if wanted != found:
                    self._problems.add(f"checkpoints: {found} instead of {wanted}")

    def _open_with_mlflow(self) -> None:
        """Migrate to this MLflow's revision, as an upgrade would, and search with its stores."""
        uris = {name: self._database.uri(restored) for name, restored in self._names.items()}
        for name, uri in uris.items():
            migrate_schema(name, uri)
        self.found = count_by_mlflow(uris[RUNS], uris[ACCOUNTS])
        rows = {table.name: table.contents.rows for one in self._manifest.databases for table in one.tables}
        with snapshot(self._database, RUNS, name=self._names[RUNS]) as cursor:
            with_runs = count_experiments_with_runs(cursor)
        wanted = {"experiments": rows["experiments"], "experiments with runs": with_runs, "users": rows["users"]}
        for name, number in wanted.items():
            # MLflow makes a default experiment where there is none.
            if self.found[name] < number:
                self._problems.add(f"MLflow finds {self.found[name]} {name} of {number}")
