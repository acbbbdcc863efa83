"""What was delivered of a run, in its folder's `tracking.json`, and the lock that lets one process deliver at a time."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE_NAME = "tracking.json"
LOCK_NAME = "tracking.lock"


@dataclass(kw_only=True)
class TrackingState:
    """How far the delivery of a run has come.

    Attributes:
        uri: the store that everything below refers to.
        run_key: a random tag of the MLflow run: a run that was created just before a crash is found again by it.
        experiment_id, run_id: MLflow's own, empty before the run was created there.
        offset: bytes of the run's log that were delivered.
        system_offset: bytes of the system samples that were delivered.
        newest_step: newest delivered step of each series; a step that was lost and done again is not delivered twice.
        model_version: version of the registered model, empty where there is none yet.
        status: the MLflow status set last.
        problem: why the last attempt to deliver failed, empty where it did not.
    """

    uri: str
    run_key: str = field(default_factory=lambda: uuid.uuid4().hex)
    experiment_id: str = ""
    run_id: str = ""
    offset: int = 0
    system_offset: int = 0
    newest_step: dict[str, int] = field(default_factory=dict)
    model_version: str = ""
    status: str = ""
    problem: str = ""

    @classmethod
    def load(cls, run_directory: Path) -> TrackingState | None:
        """The state of a run; None where nobody has tried to deliver it yet."""
        try:
            text = (run_directory / FILE_NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return cls(**json.loads(text))

    def save(self, run_directory: Path) -> None:
        """Replace the file as a whole; after a crash it holds this state or the one before."""
        partial = run_directory / f"{FILE_NAME}.partial"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(run_directory / FILE_NAME)


@contextmanager
def delivering(run_directory: Path, *, wait: bool) -> Iterator[bool]:
    """Be the one process that delivers this run, for the length of the block or of the process.

    Args:
        run_directory: the run's folder.
        wait: wait for the process that delivers it now, if there is one.

    Yields:
        Whether the lock was had; always true with `wait`.
    """
    with (run_directory / LOCK_NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
