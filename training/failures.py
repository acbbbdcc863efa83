"""Failure records of ranks, and how the driver finds the cause in them.

A rank writes its exception to `failures/attempt-<a>-rank-<r>.json` before it ends. The earliest is the cause; the others are
usually peers whose connection broke. A rank that was killed, exited or hangs writes no record. Then the cause is derived from its exit
status, from what its peers report, and from the step and the stack that it leaves (`training.evidence`).
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from training import evidence, flight_records, unwritable
from training.config.schema import ScaleSettings
from training.errors import ExitStatus, LoaderProcessError, PlatformError
from training.evidence import FATAL_SIGNALS, FOLDER, Evidence
from training.launch import ray_facts
from training.launch.ray_facts import Fact
from training.launch.task import WorkersFailedError
from training.recovery.causes import Cause, cause_of, lost_loader, speaks_of_timeout
from training.user_code import user_traceback

STEP_DEADLINE: Final = "StepDeadlineExceeded"
"""Kind of the failure of a rank whose step `training.deadlines` ends."""
BATCH_DEADLINE: Final = "BatchDeadlineExceeded"
"""The same for a wait for a batch."""
STOPPED_WAITING: Final = "StoppedWaiting"
"""The same for one that goes on while the run is asked to stop."""

_DIED = "WorkerDied"
_HUNG = "RankNotAnswering"
_CRASHES = frozenset(number.name for number in FATAL_SIGNALS.values())
_MEMORY = (
    "often the out-of-memory killer: check dmesg or the pod's status; lower loop.global_batch, raise loop.accumulation, "
    "or give the ranks more memory"
)
_NATIVE = "native code crashed, of an extension or a library, so Python could not report an error"
REMEDY_OF_LOST_LOADER = (
    "it is often the out-of-memory killer, or a full /dev/shm (Bus error): check dmesg or the pod's status; lower data.loader_workers or "
    "data.prefetch, or give the ranks more memory"
)
_REMEDY_OF_DIFFERENCE = (
    "in this step the ranks use different weights, or call collectives of the model's own, e.g. in a branch that depends on the rank, a "
    "random number or the batch: let every rank take the same branch; with strategy.name=ddp and communication.unused_parameters=true "
    "they may use different weights"
)
_REMEDY_OF_CONNECTIONS = (
    "every rank lost the others: a connection broke or a step took longer than scale.collective_timeout (check the network), or the code "
    "lets the ranks run different collectives (compare their stacks in the run's folder, failures/)"
)
_MISMATCH = re.compile(r"(?P<received>\d+) vs (?P<expected>\d+)\. Received data size doesn't match expected size")
"""Gloo's message when it ends a process (gloo, transport/tcp/pair.cc)."""

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
        cause: what decides on a restart.
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
    cause: Cause = Cause.CODE
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
                cause=cause_of(error),
                full_disk=number,
            )
        message, remedy = str(error), ""
        if how := lost_loader(error):  # outside of the loop, e.g. while what it holds is closed
            return cls(
                rank=rank,
                time=time.time(),
                kind=LoaderProcessError.__name__,
                message=how,
                remedy=REMEDY_OF_LOST_LOADER,
                cause=Cause.LOST_PROCESS,
            )
        if isinstance(error, SystemExit):
            code, said = (error.code or 0, "") if isinstance(error.code, int | None) else (1, f": {error.code}")
            message, remedy = f"ended with exit code {code} before the training ended{said}", _remedy_of_exit()
        return cls(
            rank=rank,
            time=time.time(),
            kind=type(error).__name__,
            message=message,
            remedy=remedy,
            cause=cause_of(error),
            trace=user_traceback(error),
            full_disk=number,
        )

    @classmethod
    def sudden(
        cls,
        message: str,
        *,
        kind: str = _DIED,
        cause: Cause = Cause.LOST_PROCESS,
        remedy: str = "",
        found: Evidence | None = None,
    ) -> Failure:
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
            cause=cause,
            step=found.step,
            place=found.place,
        )

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> Failure:
        """The failure from its JSON types."""
        return cls(**{**record, "cause": Cause(record["cause"])})

    @property
    def headline(self) -> str:
        """Which rank failed and why, in one line."""
        first = self.message.strip().partition("\n")[0]
        if self.rank < 0:
            return first
        if self.kind == SystemExit.__name__:
            return f"rank {self.rank} {first}"
        return f"rank {self.rank} failed: {self.kind}: {first}" if first else f"rank {self.rank} failed: {self.kind}"

    def crashed_as(self, other: Failure) -> bool:
        """Whether native code crashed in both, by the same signal in the same place."""
        return self.kind in _CRASHES and bool(self.place) and (self.kind, self.place) == (other.kind, other.place)


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


def _records(run_directory: Path, attempt: int) -> list[Failure]:
    """What the ranks have recorded, the earliest first, each with the step that it was in."""
    paths = (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.json")
    records = [Failure.load(json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    return [
        replace(one, step=one.step or evidence.read(run_directory, attempt=attempt, rank=one.rank).step)
        for one in sorted(records, key=lambda failure: failure.time)
    ]


def cause(run_directory: Path, *, attempt: int, ended: WorkersFailedError, scale: ScaleSettings) -> Failure:
    """The failure that ended an attempt.

    In this order: the earliest exception that is not a lost connection; a rank that died, by its exit status; a rank that its peers
    waited for in vain; a rank that is missing without a trace; else what the launcher reports.
    """
    records = _records(run_directory, attempt)
    facts = ray_facts.read(run_directory, attempt=attempt)
    raised = next((failure for failure in records if failure.cause is not Cause.COMMUNICATION), None)
    if raised is not None and raised.kind == STEP_DEADLINE:
        return _of_step_deadline(run_directory, records, attempt=attempt, workers=scale.workers)
    missing = raised or _of_missing_ranks(run_directory, records, facts, attempt=attempt, ended=ended, scale=scale)
    if missing is not None:
        return missing
    if len(records) == scale.workers:
        return _of_difference(run_directory, records[0], attempt=attempt) or replace(
            records[0], remedy=records[0].remedy or _REMEDY_OF_CONNECTIONS
        )
    if records and not ended.exits:
        return records[0]
    if not evidence.has_started(run_directory, attempt=attempt):
        return _of_start(str(ended), facts)
    return Failure.sudden(str(ended))


def _of_missing_ranks(
    run_directory: Path,
    records: Sequence[Failure],
    facts: Sequence[Fact],
    *,
    attempt: int,
    ended: WorkersFailedError,
    scale: ScaleSettings,
) -> Failure | None:
    """The failure of a rank that has recorded none, or is gone with its machine; None if none of them is known to have failed."""
    # A machine that is cut off may still reach the run's folder, where its rank records that it has lost the others.
    gone = {rank for rank, status in ended.exits.items() if status is None}
    reported = {failure.rank for failure in records} - gone
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
    if known := [failure for failure in died if failure.kind != _DIED]:
        return _of_killed(run_directory, known[0], attempt=attempt, output=str(ended), scale=scale)
    if died and (lost := ray_facts.lost_with_node(facts)):
        return _of_lost_node(died[0], lost)
    if left and any(speaks_of_timeout(failure.message) for failure in records):
        waits = flight_records.describe_waits(run_directory, attempt=attempt, silent=sorted(left))
        return _of_silence(left, scale.collective_timeout, waits=waits)
    if died:
        return died[0]
    ended_early = [rank for rank, found in left.items() if not found.was_terminated]
    if records and ended_early and scale.launcher == "torchrun" and scale.nodes == 1:
        # torchrun lists a rank that failed, and one that it terminated leaves a stack: this one has exited with 0.
        return _of_exit(ended_early[0], 0, left[ended_early[0]], output="")
    return None


def _of_killed(run_directory: Path, died: Failure, *, attempt: int, output: str, scale: ScaleSettings) -> Failure:
    """The failure of a rank whose signal or status is known: its own, or why the communication has ended it."""
    if mismatch := _MISMATCH.search(output):
        return _of_mismatch(died, int(mismatch["received"]), int(mismatch["expected"]))
    is_timeout = died.kind == signal.SIGABRT.name and flight_records.aborted(run_directory, attempt=attempt)
    return _of_aborted(run_directory, died, attempt=attempt, scale=scale) if is_timeout else died


def _of_step_deadline(run_directory: Path, records: Sequence[Failure], *, attempt: int, workers: int) -> Failure:
    """The failure of the rank that its peers wait for, of those whose step took too long; the first one if that is not known."""
    exceeded = [failure for failure in records if failure.kind == STEP_DEADLINE]
    entered = flight_records.entered(run_directory, attempt=attempt)
    silent = sorted(set(range(workers)) - {failure.rank for failure in records})
    first = min(exceeded, key=lambda one: entered[one.rank].number if one.rank in entered else -1)
    behind = silent or [first.rank]
    waiting = {rank: collective for rank, collective in entered.items() if rank not in behind}
    if not silent and first.rank in entered and all(one == entered[first.rank] for one in waiting.values()):
        return exceeded[0]  # all of them are in the same collective
    waits = flight_records.waits_in_words(waiting, behind)
    return replace(first, message=f"{first.message}\n{waits}") if waits else first


def _of_exit(rank: int, status: int | None, found: Evidence, *, output: str) -> Failure:
    """The failure of a rank that ended without a record, with its exit status if that is known."""
    if found.exceeded_deadline:
        message = f"rank {rank} did not end its step in time (recovery.step_deadline)"
        remedy = remedy_of_deadline("the deadline")
        return Failure.sudden(message, kind=STEP_DEADLINE, cause=Cause.HANG, remedy=remedy, found=found)
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
    return replace(ended, cause=Cause.CODE)  # a decision of the code, which would decide the same again


def _of_aborted(run_directory: Path, died: Failure, *, attempt: int, scale: ScaleSettings) -> Failure:
    """The failure of the ranks that the rank which NCCL's watchdog aborted has waited for: those that have entered fewer collectives."""
    if (different := _of_difference(run_directory, died, attempt=attempt)) is not None:
        return different
    entered = flight_records.entered(run_directory, attempt=attempt)
    silent = [rank for rank in range(scale.workers) if rank not in entered]
    fewest = min((one.number for one in entered.values()), default=0)
    behind = silent or [rank for rank, one in entered.items() if one.number == fewest]
    if len(behind) == scale.workers:
        message = f"{died.headline}: a collective timed out that all ranks have entered"
        return replace(
            died,
            cause=Cause.COMMUNICATION,
            message=message,
            remedy="check the network between the nodes, and NCCL's log",
        )
    waiting = {rank: one for rank, one in entered.items() if rank not in behind}
    left = {rank: evidence.read(run_directory, attempt=attempt, rank=rank) for rank in behind}
    return _of_silence(left, scale.collective_timeout, waits=flight_records.waits_in_words(waiting, behind))


def _of_difference(run_directory: Path, first: Failure, *, attempt: int) -> Failure | None:
    """The failure of ranks that have waited for each other in different collectives; None if they are not known to have."""
    places = flight_records.differing(run_directory, attempt=attempt)
    if not places:
        return None
    return replace(
        first,
        cause=Cause.CODE,
        message=f"{flight_records.waits_in_words(places, [])}\n{first.headline}",
        remedy=_REMEDY_OF_DIFFERENCE,
        trace="",
    )


def _of_mismatch(died: Failure, received: int, expected: int) -> Failure:
    """The failure of a rank that Gloo has aborted, because what another rank sent does not fit its collective."""
    return replace(
        died,
        cause=Cause.CODE,  # the same samples and random numbers would decide the same again
        message=f"{died.headline}: another rank sent {received:,} bytes for a collective of {expected:,}, so the ranks do not "
        "run the same collectives",
        remedy=_REMEDY_OF_DIFFERENCE,
    )


def _of_silence(left: dict[int, Evidence], timeout: float, *, waits: str) -> Failure:
    """The failure of ranks that their peers waited for until the timeout; `waits` says in which collective."""
    ranks: Sequence[int] = sorted(left)
    names = ", ".join(f"rank {rank}" for rank in ranks)
    return Failure.sudden(
        f"{names} did not answer within {timeout:g} s (scale.collective_timeout)" + (f"\n{waits}" if waits else ""),
        kind=_HUNG,
        cause=Cause.HANG,
        remedy="it hangs, its machine is gone, or its step takes longer: see its log and stack in the run's folder, "
        "logs/ and failures/; raise scale.collective_timeout if steps are that slow",
        found=left[ranks[0]],
    )


def _of_lost_node(died: Failure, reason: str) -> Failure:
    """The failure of a rank that died with its node, which Ray knows."""
    return replace(
        died,
        cause=Cause.LOST_NODE,
        message=f"{died.headline}: its node is gone\n{reason}",
        remedy="see the node's events, or its instance's, for why it went",
    )


def _of_start(message: str, facts: Sequence[Fact]) -> Failure:
    """The failure of ranks of which none has started; `message` is the launcher's."""
    if lacks := ray_facts.shortage(facts):
        return Failure.sudden(
            f"the cluster has too few resources for the ranks\n{lacks}",
            kind="NotScheduled",
            cause=Cause.SCHEDULING,
            remedy="ask for less (scale.workers, scale.cpus_per_worker, scale.gpu), add nodes, or raise recovery.scheduling.deadline",
        )
    return Failure.sudden(message, kind="NotStarted", cause=Cause.STARTUP)


def remedy_of_deadline(setting: str) -> str:
    """What to do about a step, or a wait for a batch, that took longer than a setting allows."""
    return (
        f"it hangs, or takes longer: see the stacks in the run's folder, failures/; raise {setting} if it is that slow"
    )


def _remedy_of_exit() -> str:
    return "remove the call of sys.exit or os._exit from the code; raise an exception to report an error"
