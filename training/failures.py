"""Failure records of ranks, and how the driver finds the cause in them.

A rank writes its exception to `failures/attempt-<a>-rank-<r>.json` before it ends. The earliest is the cause; the others are
usually peers whose connection broke. A rank that was killed, exited or hangs writes no record. Then the cause is derived from its exit
status, from what its peers report, and from the step and the stack that it leaves (`training.evidence`).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from training import evidence, flight_records, unwritable
from training.config.schema import ScaleSettings
from training.errors import ExitStatus, PlatformError
from training.evidence import FATAL_SIGNALS, FOLDER, Evidence
from training.launch.task import WorkersFailedError
from training.user_code import user_traceback

_DIED = "WorkerDied"
_HUNG = "RankNotAnswering"
_COMMUNICATION_ERRORS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"})
_CRASHES = frozenset(number.name for number in FATAL_SIGNALS.values())
_MEMORY = (
    "often the out-of-memory killer: check dmesg or the pod's status; lower loop.global_batch, raise loop.accumulation, "
    "or give the ranks more memory"
)
_NATIVE = "native code crashed, of an extension or a library, so Python could not report an error"
_REMEDIES = {
    signal.SIGKILL.name: f"SIGKILL is {_MEMORY}",
    signal.SIGBUS.name: f"{_NATIVE}; SIGBUS may mean that /dev/shm is full or a memory-mapped file was truncated",
    **dict.fromkeys(_CRASHES - {signal.SIGBUS.name}, _NATIVE),
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception on a rank.

    Attributes:
        kind: class name of the exception.
        status: exit status the run ends with if this is the cause.
        is_transient: another attempt may succeed: a broken connection or a killed process, not a defect of code or input.
        trace: the traceback as text, from user code on; empty for errors whose message is enough.
        step: the step in which the rank died or hung; None if unknown.
        place: where it was in the code; empty if unknown.
        full_disk: errno of the full disk or quota that caused it; None for other causes.
    """

    rank: int
    time: float
    kind: str
    message: str
    remedy: str = ""
    status: int = ExitStatus.FAILED
    is_transient: bool = False
    trace: str = ""
    step: int | None = None
    place: str = ""
    full_disk: int | None = None

    @classmethod
    def of(cls, error: BaseException, *, rank: int) -> Failure:
        """The record of an exception that a rank is about to end with."""
        full = unwritable.full_disk(error)
        number = None if full is None else full.errno
        if isinstance(error, PlatformError):
            return cls(
                rank=rank,
                time=time.time(),
                kind=type(error).__name__,
                message=str(error.args[0]),
                remedy=error.remedy,
                status=error.status,
                full_disk=number,
            )
        message, remedy = str(error), ""
        if isinstance(error, SystemExit):
            code, said = (error.code or 0, "") if isinstance(error.code, int | None) else (1, f": {error.code}")
            message, remedy = f"ended with exit code {code} before the training ended{said}", _remedy_of_exit()
        return cls(
            rank=rank,
            time=time.time(),
            kind=type(error).__name__,
            message=message,
            remedy=remedy,
            is_transient=is_communication_error(error),
            trace=user_traceback(error),
            full_disk=number,
        )

    @classmethod
    def sudden(cls, message: str, *, kind: str = _DIED, remedy: str = "", found: Evidence | None = None) -> Failure:
        """Workers ended without a record; the message names them. `found` is what the rank left."""
        found = found or Evidence()
        where = f", in step {found.step}" if found.step is not None else ""
        where += f", at {found.place}" if found.place else ""
        first, line_end, rest = message.partition("\n")
        return cls(
            rank=-1,
            time=time.time(),
            kind=kind,
            message=f"{first}{where}{line_end}{rest}",
            remedy=remedy or f"check the logs of the ranks; a process that vanishes was {_MEMORY}",
            is_transient=True,
            step=found.step,
            place=found.place,
        )

    @property
    def headline(self) -> str:
        """Which rank failed and why, in one line."""
        first = self.message.strip().partition("\n")[0]
        if self.rank < 0:
            return first
        if self.kind == SystemExit.__name__:
            return f"rank {self.rank} {first}"
        return f"rank {self.rank} failed: {self.kind}: {first}" if first else f"rank {self.rank} failed: {self.kind}"

    def repeats(self, earlier: Failure | None) -> bool:
        """Whether a rank died or hung as in an earlier attempt: in the same step, or by a crash in the same place."""
        if earlier is None or self.rank >= 0 or self.kind != earlier.kind:
            return False
        is_same_step = self.step is not None and self.step == earlier.step
        return is_same_step or (self.kind in _CRASHES and bool(self.place) and self.place == earlier.place)


def is_communication_error(error: BaseException) -> bool:
    """Whether a collective failed: a peer is gone, or did not come in time."""
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
    for path in (run_directory / FOLDER).glob("attempt-*"):
        path.unlink()


def cause(run_directory: Path, *, attempt: int, ended: WorkersFailedError, scale: ScaleSettings) -> Failure:
    """The failure that ended an attempt.

    In this order: the earliest exception that is not a lost connection; a rank that died, by its exit status; a rank that its peers
    waited for in vain; a rank that is missing without a trace; else what the launcher reports.
    """
    paths = (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.json")
    records = [Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    records.sort(key=lambda failure: failure.time)
    for failure in records:
        if not failure.is_transient:
            return failure
    reported = {failure.rank for failure in records}
    left = {
        rank: evidence.read(run_directory, attempt=attempt, rank=rank)
        for rank in range(scale.workers)
        if rank not in reported
    }
    died = [
        _of_exit(rank, status, left[rank], output=str(ended))
        for rank, status in sorted(ended.exits.items(), key=lambda item: (item[1] is None, item))
        if rank in left
    ]
    known = [failure for failure in died if failure.kind != _DIED]
    if known:
        return known[0]
    if left and any("timed out" in failure.message.lower() for failure in records):
        waits = flight_records.describe_waits(run_directory, attempt=attempt, silent=sorted(left))
        return _of_silence(left, scale.collective_timeout, waits=waits)
    if died:
        return died[0]
    gone = [rank for rank, found in left.items() if not found.was_terminated]
    if records and gone and scale.launcher == "torchrun" and scale.nodes == 1:
        # torchrun lists a rank that failed, and one that it terminated leaves a stack: this one has exited with 0.
        return _of_exit(gone[0], 0, left[gone[0]], output="")
    return records[0] if records and not ended.exits else Failure.sudden(str(ended))


def _of_exit(rank: int, status: int | None, found: Evidence, *, output: str) -> Failure:
    """The failure of a rank that ended without a record, with its exit status if that is known."""
    number = found.fatal if status is None or found.fatal else signal.Signals(-status) if status < 0 else None
    if number is not None:
        message = f"rank {rank} was killed by {number.name}"
        return Failure.sudden(message, kind=number.name, remedy=_REMEDIES.get(number.name, ""), found=found)
    if status is None:
        remedy = f"it was killed, {_MEMORY}; or its code called os._exit"
        return Failure.sudden(f"rank {rank} died without reporting an error", remedy=remedy, found=found)
    message = f"rank {rank} ended with exit code {status} before the training ended"
    if status:
        return Failure.sudden(f"{message}\n{output}", kind=f"exit code {status}", found=found)
    ended = Failure.sudden(message, kind="exit code 0", remedy=_remedy_of_exit(), found=found)
    return replace(ended, is_transient=False)  # a decision of the code, which would decide the same again


def _of_silence(left: dict[int, Evidence], timeout: float, *, waits: str) -> Failure:
    """The failure of ranks that their peers waited for until the timeout; `waits` says in which collective."""
    ranks: Sequence[int] = sorted(left)
    names = ", ".join(f"rank {rank}" for rank in ranks)
    return Failure.sudden(
        f"{names} did not answer within {timeout:g} s (scale.collective_timeout)" + (f"\n{waits}" if waits else ""),
        kind=_HUNG,
        remedy="it hangs, its machine is gone, or its step takes longer: see its log and stack in the run's folder, "
        "logs/ and failures/; raise scale.collective_timeout if steps are that slow",
        found=left[ranks[0]],
    )


def _remedy_of_exit() -> str:
    return "remove the call of sys.exit or os._exit from the code; raise an exception to report an error"
