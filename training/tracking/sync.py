"""Delivers what runs have logged and MLflow does not have yet: `python -m training sync`, and each follower after its own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from observability.runlog import FILE_NAME
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, PlatformError
from training.rundir import RunDirectory
from training.tracking.locations import tracking_uri, without_password
from training.tracking.state import TrackingState, delivering


@dataclass(frozen=True)
class SyncResult:
    """What became of one run that had something left to deliver.

    Attributes:
        run: its name.
        message: what became of it, in words.
        is_failure: it could not be delivered.
    """

    run: str
    message: str
    is_failure: bool = False


def sync(run_directories: Sequence[Path]) -> ExitStatus:
    """Send MLflow what it does not have of these runs, and say so; failed where something is left."""
    results = []
    for result in deliver_pending(run_directories):
        results.append(result)
        print(f"{result.run}: {result.message}", flush=True)
    if not results:
        print(f"MLflow has everything of {len(run_directories)} run(s)")
    return ExitStatus.FAILED if any(result.is_failure for result in results) else ExitStatus.DONE


def deliver_pending(run_directories: Sequence[Path]) -> Iterator[SyncResult]:
    """Deliver those of the runs that are tracked and have something left, one after the other.

    A run that another process delivers, its follower most likely, is left to it. A store that was away is not asked again.
    """
    away: dict[str, str] = {}
    for directory in run_directories:
        if not _is_pending(directory):
            continue
        with delivering(directory, wait=False) as is_ours:
            if is_ours:
                yield from _deliver(directory, away)
            else:
                yield SyncResult(directory.name, "another process is delivering it")


def _is_pending(directory: Path) -> bool:
    """Whether the log is longer than what was delivered, or an end was not told; cheap, and true for a run not tracked yet."""
    state = TrackingState.load(directory)
    log = directory / FILE_NAME
    size = log.stat().st_size if log.exists() else 0
    return size > 0 if state is None else size > state.offset or state.status == "RUNNING"


def _deliver(directory: Path, away: dict[str, str]) -> Iterator[SyncResult]:
    from training.tracking.client import Unavailable, in_words  # noqa: PLC0415 - a second, not spent for nothing
    from training.tracking.delivery import Delivery, last_start  # noqa: PLC0415

    started = last_start(directory)
    if started is None:
        return
    try:
        settings = TrainingSettings.model_validate(started.settings)
    except ValidationError as error:
        names = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        message = f"its settings are of another version of the platform ({names}); deliver it with that one"
        yield SyncResult(directory.name, message, is_failure=True)
        return
    if not settings.tracking.enabled:
        return
    uri = tracking_uri(settings.tracking)
    if uri in away:
        yield SyncResult(directory.name, away[uri], is_failure=True)
        return
    delivery = Delivery(directory, started)
    try:
        delivery.advance(is_over=not RunDirectory(directory).is_running())
    except Unavailable as error:
        delivery.remember_problem(in_words(error))
        away[uri] = f"MLflow at {without_password(uri)}: {in_words(error)}"
        yield SyncResult(directory.name, away[uri], is_failure=True)
    except PlatformError as error:
        # The run's own model can no longer be built, for example.
        delivery.remember_problem(in_words(error))
        yield SyncResult(directory.name, str(error), is_failure=True)
    else:
        yield SyncResult(directory.name, "delivered")
