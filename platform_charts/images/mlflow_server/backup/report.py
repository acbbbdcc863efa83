"""The report of a drill, as lines for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

REPORT = "report: "
"""Begins the last line of a backup or drill, which is JSON."""

MOST_PROBLEMS = 20
"""Problems that are named; the rest is counted."""

_KIB = 1024
_HOUR = 3600


class Problems:
    """What a drill finds, one sentence each: a few are kept and all are counted, as there may be one for every artifact.

    Attributes:
        named: the first ones.
        count: number of all.
    """

    def __init__(self) -> None:
        self.named: list[str] = []
        self.count = 0

    def add(self, *sentences: str) -> None:
        """Count these, and keep them while there is room."""
        self.count += len(sentences)
        self.named += sentences[: MOST_PROBLEMS - len(self.named)]


@dataclass(frozen=True, kw_only=True)
class DatabaseReport:
    """A database that was restored: the name of the original, how many tables and rows it has, and its schema's revision."""

    name: str
    tables: int
    rows: int
    revision: str


@dataclass(frozen=True, kw_only=True)
class DrillReport:
    """Outcome of a drill.

    Attributes:
        backup: name of the backup.
        age_seconds: age of the backup when the drill began: what a loss at that moment would have lost (RPO).
        restore_seconds: time from the first byte to databases with all rows (RTO without the time to decide).
        total_seconds: duration of the drill, with all comparisons.
        databases: those that were restored.
        mlflow: what MLflow's own stores found in them: experiments, runs and users.
        artifacts: versions that were looked up.
        artifacts_read: versions that were read to the end.
        checkpoints: checkpoints in the index.
        problems: the first `MOST_PROBLEMS`; none if everything is as it was.
        problem_count: number of all.
        notes: what else to know.
    """

    backup: str
    age_seconds: float
    restore_seconds: float
    total_seconds: float
    databases: tuple[DatabaseReport, ...]
    mlflow: dict[str, int]
    artifacts: int
    artifacts_read: int
    checkpoints: int
    problems: tuple[str, ...]
    problem_count: int
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether everything is as it was."""
        return not self.problem_count

    def lines(self) -> Iterator[str]:
        """For people, with the JSON as the last line."""
        yield from (f"note: {note}" for note in self.notes)
        for one in self.databases:
            yield f"database {one.name}: {one.tables} tables, {one.rows:,} rows, revision {one.revision}"
        if self.mlflow:
            yield f"MLflow opens them: {', '.join(f'{count:,} {name}' for name, count in self.mlflow.items())}"
        yield f"artifacts: {self.artifacts:,} versions looked up, {self.artifacts_read:,} read to the end"
        yield f"checkpoints: {self.checkpoints:,} in the index"
        yield from (f"difference: {problem}" for problem in self.problems)
        if more := self.problem_count - len(self.problems):
            yield f"and {more:,} more differences"
        outcome = "passed" if self.passed else "failed"
        yield (
            f"restore drill of backup {self.backup} {outcome}: age {self.age_seconds / _HOUR:.1f} h (RPO), restored in "
            f"{self.restore_seconds:.1f} s (RTO), {self.total_seconds:.1f} s in all"
        )
        yield f"{REPORT}{json.dumps({'passed': self.passed, **asdict(self)})}"


def size_text(size: float) -> str:
    """A size with a unit, e.g. `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} TiB"
