"""`postmortem` of a run on this machine, from what its folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.spec.output import writing
from observability.history import RunHistory, state_of
from observability.history import State as RunState
from observability.postmortem import page
from observability.postmortem.case import Case, LogTail, RayFact, Report, State
from observability.runlog import Event, RunEnded, RunStarted, WorkersFailed, read_all
from training.errors import ExitStatus
from training.evidence import FOLDER
from training.rundir import RunDirectory

PAGE = "postmortem.html"

_LINES = 40
_TAIL_BYTES = 32_768
_STATES: dict[RunState, State] = {
    "running": "runs",
    "done": "done",
    "failed": "failed",
    "interrupted": "stopped",
    "killed": "killed",
}


def case_of(run: RunDirectory) -> Case:
    """What the folder of a run tells of its end; the run may still be going."""
    is_running = run.is_running()
    events = read_all(run.path)
    history = RunHistory.from_events(events)
    return Case(
        name=run.name,
        is_job=False,
        state=_STATES[state_of(history.ended, is_running=is_running)],
        reports=_reports(events),
        history=history,
        ray=list(_ray(run.path / FOLDER)),
        logs=[*_failures(run.path / FOLDER), *_logs(run.logs)],
        links=[("run directory", str(run.path)), ("settings", str(run.settings_file))],
    )


def show(case: Case, path: Path) -> ExitStatus:
    """Print what matters, and write the page.

    Raises:
        SettingsError: the page cannot be written.
    """
    print(page.text(case))
    with writing(path):
        page.write(case, path)
    print(f"\npage {path}")
    return ExitStatus.DONE


def brief(run: RunDirectory) -> str:
    """Why a run ended, as `show` prints it, and the command that resumes it."""
    return f"{page.summary(case_of(run))}\n  resume: make resume NAME={run.argument}"


def _reports(events: Iterable[Event]) -> list[Report]:
    """The failures of all worker groups, and how the run failed where that was another failure."""
    found: list[Report] = []
    is_reported = False
    for event in events:
        if isinstance(event, RunStarted):
            is_reported = False
        elif isinstance(event, WorkersFailed):
            found.append(Report(time=_moment(event.time), text=event.reason))
            is_reported = not event.restarts
        elif isinstance(event, RunEnded) and event.status == "failed" and not is_reported:
            text, _, remedy = event.message.partition("\n  remedy: ")
            found.append(Report(time=_moment(event.time), text=text.strip().rpartition("\n")[2], remedy=remedy))
    return found


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _ray(folder: Path) -> Iterator[RayFact]:
    """Ray's state after each attempt that failed."""
    for path in sorted(folder.glob("attempt-*-ray.json")):
        for one in _parsed(path) or ():
            yield RayFact(attempt=int(path.name.split("-")[1]), what=one["what"], state=one["state"], why=one["why"])


def _failures(folder: Path) -> Iterator[LogTail]:
    """The tracebacks that ranks recorded, and the stacks that they left; the newest attempt's first."""
    for path in sorted(folder.glob("attempt-*-rank-*.json"), reverse=True):
        record = _parsed(path) or {}
        if trace := record.get("trace") or record.get("message", ""):
            yield LogTail(
                title=f"exception of rank {record.get('rank')} ({path.name})", lines=trace.splitlines()[-_LINES:]
            )
    for path in sorted(folder.glob("attempt-*.stack"), reverse=True):
        if lines := _tail(path):
            yield LogTail(title=f"last stack ({path.name})", lines=lines)


def _logs(folder: Path) -> Iterator[LogTail]:
    for path in sorted(folder.glob("rank-*.jsonl")):
        if lines := [_plain(line) for line in _tail(path)]:
            yield LogTail(title=f"log of rank {path.stem.removeprefix('rank-')}", lines=lines)
    for path in sorted(folder.glob("launcher*.log")):
        if lines := _tail(path):
            yield LogTail(title=f"output of the ranks ({path.name})", lines=lines)


def _plain(line: str) -> str:
    """A line of a rank's log as people read it."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    parts = [str(record.get(key, "")) for key in ("time", "level", "message", "exception")]
    return "  ".join(part for part in parts if part)


def _parsed(path: Path) -> Any:  # noqa: ANN401 - JSON
    """A file of ours; None where it is damaged, because the rest of the page is needed all the more."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _tail(path: Path) -> list[str]:
    """The last lines of a file, without reading all of it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[(1 if size > _TAIL_BYTES else 0) :][-_LINES:]
