"""What the driver of a run does about its bucket: checks it before anything starts, and holds the lease while it drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from observability.runlog import Notice, RunLogWriter
from training.checkpoint.remote.access import refusal, try_bucket
from training.checkpoint.remote.bucket import RemoteStoreError, RunBucket
from training.checkpoint.remote.lease import RENEWED_EVERY, held
from training.checkpoint.remote.location import RemoteLocation
from training.config.schema import TrainingSettings
from training.rundir import RunDirectory

_UNNAMED = "write-test"
"""Stands for the name of a run that gets its name, and so its part of the bucket, from the time."""


def check_bucket(settings: TrainingSettings) -> bool:
    """Whether the run's bucket has checkpoints of it; False without a bucket.

    Raises:
        PreflightError: the bucket cannot be used.
        ResumeMismatchError: it has a checkpoint of another run under the same name.
    """
    location = RemoteLocation.of(settings.checkpoint, settings.run.name or _UNNAMED)
    return location is not None and try_bucket(location, settings)


@contextmanager
def leased(
    settings: TrainingSettings, run: RunDirectory, *, say: Callable[[str], None], renewed_every: float = RENEWED_EVERY
) -> Iterator[None]:
    """Hold the lease on the run's part of the bucket, if it has one, while the block drives it. A run that loses it stops.

    Args:
        settings: of the run.
        run: its folder.
        say: told what this waits for.
        renewed_every: seconds between two renewals.

    Raises:
        PreflightError: another driver that lives holds it, or the bucket fails.
    """
    location = RemoteLocation.of(settings.checkpoint, run.name)
    if location is None:
        yield
        return

    def stop(reason: str) -> None:
        with RunLogWriter(run.path) as log:
            log.write(Notice(level="error", message=f"{reason}: saving and stopping at the next step"))
        run.stop_request.touch()

    with ExitStack() as stack:
        try:
            stack.enter_context(held(RunBucket(location), run.path, say=say, on_lost=stop, renewed_every=renewed_every))
        except RemoteStoreError as error:
            raise refusal(location, error) from error
        yield
