"""The delivery state of a run, `tracking.json` in its folder, and the lock that lets one process deliver at a time."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from training.tracking.thinning import Series

FILE_NAME = "tracking.json"
LOCK_NAME = "tracking.lock"


class StoreUnavailableError(Exception):
    """The tracking store is unavailable or rejected a request; the message is one line."""


@dataclass(kw_only=True)
class TrackingState:
    """Progress of the delivery of a run.

    Attributes:
        uri: tracking store that the other fields refer to.
        run_key: random tag of the MLflow run, which finds a run that was created just before a crash.
        experiment_id, run_id: MLflow's ids, empty until the run is created.
        offset: delivered bytes of the event log.
        system_offset: delivered bytes of the system metrics.
        newest_step: newest step of each series that was considered, so that a step repeated after a restart is not delivered twice.
        series: progress of each series that is thinned.
        model_version: version of the registered model, empty if there is none.
        status: last MLflow status that was set.
        problem: why the last delivery failed, empty if it succeeded.
        lacks: what the server is too old for, and so is not delivered; empty if it has everything.
        folder: absolute path of the run's folder at the last save.
        inode: inode of that folder.
    """

    uri: str
    run_key: str = field(default_factory=lambda: uuid.uuid4().hex)
    experiment_id: str = ""
    run_id: str = ""
    offset: int = 0
    system_offset: int = 0
    newest_step: dict[str, int] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    model_version: str = ""
    status: str = ""
    problem: str = ""
    lacks: str = ""
    folder: str = ""
    inode: int = 0

    @classmethod
    def load(cls, run_directory: Path) -> TrackingState | None:
        """The state of a run; None before the first delivery."""
        try:
            text = (run_directory / FILE_NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return _STATE.validate_json(text)

    def belongs_to(self, run_directory: Path) -> bool:
        """Whether this is the state of the run in this folder, and not of another one that the folder is a copy of.

        A moved folder keeps its inode, unless it moves to another file system; one restored in its place keeps its path.
        """
        return self.folder in {"", str(run_directory.resolve())} or self.inode == run_directory.stat().st_ino

    def save(self, run_directory: Path) -> None:
        """Replace the file atomically, as the state of the run in this folder."""
        self.folder, self.inode = str(run_directory.resolve()), run_directory.stat().st_ino
        partial = run_directory / f"{FILE_NAME}.partial"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(run_directory / FILE_NAME)


_STATE = TypeAdapter(TrackingState)


@contextmanager
def delivery_lock(run_directory: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a run's delivery within the block; the kernel releases it if the process dies.

    Args:
        run_directory: the run's folder.
        wait: wait for another process to release the lock.

    Yields:
        Whether the lock was acquired; always true with `wait`.
    """
    with (run_directory / LOCK_NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
