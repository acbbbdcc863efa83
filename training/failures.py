"""Failure records of ranks, and how the driver finds the cause in them.

A rank writes its exception to `failures/attempt-<a>-rank-<r>.json` before it ends. The earliest is the cause; the others are
usually peers whose connection broke. A killed rank writes no record; then the launcher's message is the only evidence.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from training.errors import ExitStatus, PlatformError

FOLDER = "failures"
_SUDDEN = "check the logs of the ranks, and dmesg for the out-of-memory killer"
_COMMUNICATION_ERRORS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"})


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception on a rank.

    Attributes:
        kind: class name of the exception.
        status: exit status the run ends with if this is the cause.
        is_transient: another attempt may succeed: a broken connection or a killed process, not a defect of code or input.
        trace: the traceback as text; empty for errors whose message is enough.
    """

    rank: int
    time: float
    kind: str
    message: str
    remedy: str = ""
    status: int = ExitStatus.FAILED
    is_transient: bool = False
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException, *, rank: int) -> Failure:
        """The record of an exception that a rank is about to end with."""
        if isinstance(error, PlatformError):
            return cls(
                rank=rank,
                time=time.time(),
                kind=type(error).__name__,
                message=str(error.args[0]),
                remedy=error.remedy,
                status=error.status,
            )
        lost_peer = _is_communication_error(error)
        return cls(
            rank=rank,
            time=time.time(),
            kind=type(error).__name__,
            message=str(error),
            is_transient=lost_peer,
            trace="".join(traceback.format_exception(error)),
        )

    @classmethod
    def sudden(cls, message: str) -> Failure:
        """Workers died without leaving a record; only the launcher's message is known."""
        return cls(rank=-1, time=time.time(), kind="WorkerDied", message=message, remedy=_SUDDEN, is_transient=True)

    @property
    def headline(self) -> str:
        """Which rank failed and why, in one line."""
        first = self.message.strip().partition("\n")[0]
        if self.rank < 0:
            return first
        return f"rank {self.rank} failed: {self.kind}: {first}" if first else f"rank {self.rank} failed: {self.kind}"


def _is_communication_error(error: BaseException) -> bool:
    # gloo reports a lost peer as a plain RuntimeError whose text names its own source file.
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & _COMMUNICATION_ERRORS) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def record(run_directory: Path, failure: Failure, *, attempt: int) -> None:
    """Write a rank's failure into the run's folder; on a full disk it is missing rather than truncated."""
    folder = run_directory / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"attempt-{attempt}-rank-{failure.rank}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(failure)), encoding="utf-8")
    partial.replace(path)


def clear(run_directory: Path) -> None:
    """Remove the records of earlier drivers, whose attempts have the same numbers."""
    for path in (run_directory / FOLDER).glob("attempt-*.json"):
        path.unlink()


def cause(run_directory: Path, *, attempt: int, launcher_view: str) -> Failure:
    """The failure that ended an attempt: the earliest that is not a lost connection, else what the launcher reports."""
    paths = (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.json")
    found = sorted(
        (Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in paths), key=lambda failure: failure.time
    )
    for failure in found:
        if not failure.is_transient:
            return failure
    if found and not launcher_view:
        return found[0]
    return Failure.sudden(launcher_view)
