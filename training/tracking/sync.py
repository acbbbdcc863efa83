"""Delivers runs that MLflow does not have completely: `python -m training sync`, and each follower after its own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from observability.runlog import FILE_NAME, RunStarted
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, PlatformError
from training.rundir import RunDirectory
from training.tracking.locations import redact_uri, tracking_uri
from training.tracking.state import StoreUnavailableError, TrackingState, delivery_lock


@dataclass(frozen=True)
class SyncResult:
    """Result of the delivery of one pending run.

    Attributes:
        run: name of the run.
        message: what was done, or the problem.
        is_failure: the delivery failed.
    """

    run: str
    message: str
    is_failure: bool = False


def sync(run_directories: Sequence[Path]) -> ExitStatus:
    """Deliver the pending runs and print the result of each; the status is FAILED if one could not be delivered."""
    results = []
    for result in deliver_pending(run_directories):
        results.append(result)
        print(f"{result.run}: {result.message}", flush=True)
    if not results:
        print(f"MLflow is up to date with {len(run_directories)} run(s)")
    return ExitStatus.FAILED if any(result.is_failure for result in results) else ExitStatus.DONE


def deliver_pending(run_directories: Sequence[Path]) -> Iterator[SyncResult]:
    """Deliver the pending runs among these, one after the other, and yield the results.

    Skips runs that another process delivers, usually their follower. Does not retry a store that is unavailable.
    """
    problems: dict[str, str] = {}
    for directory in run_directories:
        if not _is_pending(directory):
            continue
        with delivery_lock(directory, wait=False) as is_acquired:
            if is_acquired:
                yield from _deliver(directory, problems)
            else:
                yield SyncResult(directory.name, "another process is delivering it")


def _is_pending(directory: Path) -> bool:
    """Whether log or final status may be undelivered. Reads no log: true also for a run without tracking."""
    state = TrackingState.load(directory)
    log = directory / FILE_NAME
    size = log.stat().st_size if log.exists() else 0
    return size > 0 if state is None else size > state.offset or state.status == "RUNNING"


def _is_unused_copy(directory: Path, started: RunStarted) -> bool:
    """Whether the folder is a copy of another run, as of a backup, that was never resumed: the original has all it could deliver."""
    state = TrackingState.load(directory)
    return state is not None and not state.belongs_to(directory) and started.run != directory.name


def _deliver(directory: Path, problems: dict[str, str]) -> Iterator[SyncResult]:
    """Deliver one run; `problems` has the stores, by URI, that were unavailable."""
    from training.tracking.delivery import Delivery, last_start  # noqa: PLC0415 - imports MLflow, a second

    started = last_start(directory)
    if started is None or _is_unused_copy(directory, started):
        return
    try:
        settings = TrainingSettings.model_validate(started.settings)
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors())
        message = f"its settings are from another version of the platform ({keys}); deliver it with that version"
        yield SyncResult(directory.name, message, is_failure=True)
        return
    if not settings.tracking.enabled:
        return
    uri = tracking_uri(settings.tracking, directory)
    if uri in problems:
        yield SyncResult(directory.name, problems[uri], is_failure=True)
        return
    delivery = Delivery(directory, started)
    try:
        delivery.deliver(is_finished=not RunDirectory(directory).is_running())
    except StoreUnavailableError as error:
        problems[uri] = f"MLflow at {redact_uri(uri)}: {error}"
        yield SyncResult(directory.name, problems[uri], is_failure=True)
    except PlatformError as error:  # for example, the model can no longer be built
        delivery.record_problem(str(error).splitlines()[0])
        yield SyncResult(directory.name, str(error), is_failure=True)
    else:
        lacks = delivery.state.lacks
        yield SyncResult(directory.name, f"delivered; {lacks}" if lacks else "delivered")
    finally:
        delivery.close()
