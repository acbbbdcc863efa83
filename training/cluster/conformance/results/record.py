"""The results as JSON, and those of earlier runs of the suite in the same folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from training.cluster.conformance.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An earlier run of the suite.

    Attributes:
        started: when it began.
        platform: version of the platform.
        title: its counts in words.
        failed: ids of the checks that failed.
    """

    started: datetime
    platform: str
    title: str
    failed: tuple[str, ...]


def record(summary: Summary) -> dict[str, Any]:
    """The results as JSON types."""
    found = {key: value for key, value in asdict(summary).items() if key not in {"results", "started"}}
    checks = [
        {"name": one.check.name, "title": one.check.title, **asdict(one.finding), "seconds": round(one.seconds, 3)}
        for one in summary.results
    ]
    return {**found, "started": summary.started.isoformat(timespec="seconds"), "title": summary.title, "checks": checks}


def keep(summary: Summary, folder: Path) -> Path:
    """Write the results to a file of their own; returns it.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{summary.started:%Y%m%d-%H%M%S}.json"
    file.write_text(json.dumps(record(summary), indent=2) + "\n", encoding="utf-8")
    return file


def earlier(folder: Path, *, before: datetime) -> tuple[Earlier, ...]:
    """What is kept of earlier runs, newest first; files that are no such record are passed over."""
    found = [one for one in _read(folder) if one.started < before]
    return tuple(sorted(found, key=lambda one: one.started, reverse=True))


def _read(folder: Path) -> Iterator[Earlier]:
    for file in folder.glob("*.json"):
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            yield Earlier(
                started=datetime.fromisoformat(kept["started"]).astimezone(UTC),
                platform=str(kept["platform"]),
                title=str(kept["title"]),
                failed=tuple(one["name"] for one in kept["checks"] if one["verdict"] == "failed"),
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
