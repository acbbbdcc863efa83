"""The log of a run: one JSON object a line in `events.jsonl`, appended by the run, read by everything that looks at it.

Rank 0 and the driver write it; the progress bar, the MLflow follower, the monitor and the report read it. It is also the spool: what a
reader has not delivered yet is still in the file. A line is written in one `write` call to a file opened for appending, so
several processes of one machine can share it, and a reader never takes a line without its end.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

FILE_NAME = "events.jsonl"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run.

    Attributes:
        time: seconds since the epoch.
    """

    kind: ClassVar[str] = ""
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The driver has accepted the settings. A resumed run has several of these."""

    kind: ClassVar[str] = "run_started"
    run: str
    settings: dict[str, Any]
    environment: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """A part of start-up or shut-down began, e.g. `imports`, `ray_start`, `workers_start`, `data`, `first_batch`, `train`, `finish`."""

    kind: ClassVar[str] = "phase"
    name: str
    process: str = "driver"


@dataclass(frozen=True, kw_only=True)
class TrainingStarted(Event):
    """All ranks are ready. `start_step` is the number of optimizer steps already committed."""

    kind: ClassVar[str] = "training_started"
    world: int
    start_step: int
    total_steps: int
    steps_per_epoch: int
    parameters: int
    train_samples: int
    dataset_fingerprint: str
    metrics_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """One optimizer step.

    Attributes:
        step: 1-based number of the optimizer step in the run.
        epoch: 1-based epoch.
        loss: mean loss over the global batch.
        accuracy: share of the global batch classified rightly, 0 to 1.
        gradient_norm: global norm before clipping.
        samples: samples in the global batch.
        time: when it was done; it is reported a little later, together with its neighbours.
        seconds: wall time on rank 0 since the step before it was done, with what came between them: reports, a checkpoint.
        rank_seconds: per rank, seconds it spent on data and forward pass, before it waits for its peers.
        data_seconds, forward_seconds, backward_seconds, optimizer_seconds, checkpoint_seconds: its parts on rank 0; backward holds the
            all-reduce that overlaps it.
    """

    kind: ClassVar[str] = "step"
    step: int
    epoch: int
    loss: float
    accuracy: float
    gradient_norm: float
    learning_rate: float
    samples: int
    seconds: float
    data_seconds: float = 0.0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    rank_seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    """An exact evaluation of a split (`validation` or `test`) after `step` steps."""

    kind: ClassVar[str] = "evaluated"
    split: str
    step: int
    epoch: int
    loss: float
    accuracy: float
    samples: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint is on storage, manifest included. `stall_seconds` is what the loop waited, `write_seconds` what the writer took."""

    kind: ClassVar[str] = "checkpoint_committed"
    step: int
    path: str
    bytes: int
    stall_seconds: float
    write_seconds: float


@dataclass(frozen=True, kw_only=True)
class Restored(Event):
    """The run goes on from a checkpoint; `skipped` names newer ones that failed verification, with the reason."""

    kind: ClassVar[str] = "restored"
    step: int
    path: str
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """Something the person should know. `level` is `info`, `warning` or `error`."""

    kind: ClassVar[str] = "notice"
    level: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """The driver is done with the run.

    Attributes:
        status: `done`, `interrupted` or `failed`.
        step: last committed step.
        weights_sha256: hash of the final weights, empty unless done.
        message: the error, empty where there is none.
    """

    kind: ClassVar[str] = "run_ended"
    status: str
    step: int
    weights_sha256: str = ""
    message: str = ""


E = TypeVar("E", bound=Event)
_KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (RunStarted, Phase, TrainingStarted, Step, Evaluated, CheckpointCommitted, Restored, Notice, RunEnded)
}
_FIELDS: dict[str, frozenset[str]] = {kind: frozenset(f.name for f in fields(cls)) for kind, cls in _KINDS.items()}


_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Emit(Protocol):
    """Takes events, oldest first; several at a time cost less than one by one."""

    def __call__(self, *events: Event) -> None:
        """Take them."""
        ...


def encode(event: Event) -> str:
    """The event as one line of JSON without its line end. NaN and infinity are written as JSON's extensions `NaN` and `Infinity`."""
    return _to_json({"kind": event.kind, **vars(event)})


def decode(line: str) -> Event | None:
    """The event of a line; None for a kind of a later version, whose unknown fields are dropped likewise.

    Raises:
        ValueError: the line is not a JSON object, or lacks a field.
    """
    record = json.loads(line)
    cls = _KINDS.get(record.pop("kind", ""))
    if cls is None:
        return None
    known = _FIELDS[cls.kind]
    try:
        return cls(**{k: v for k, v in record.items() if k in known})
    except TypeError as error:
        raise ValueError(f"event of kind {cls.kind}: {error}") from error


class RunLogWriter:
    """Appends events to a run's log. Not safe for use by several threads at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / FILE_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *events: Event) -> None:
        """Append events, all by one call of the operating system."""
        os.write(self._fd, "".join(f"{encode(event)}\n" for event in events).encode())

    def close(self) -> None:
        """Close the log; further calls of `close` do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RunLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunLogReader:
    """Reads a run's log from a byte offset on, line by line, as it grows."""

    def __init__(self, directory: Path, *, offset: int = 0) -> None:
        self._path = directory / FILE_NAME
        self.offset = offset
        """Bytes read so far; a reader made with it goes on from there."""

    def read_new(self) -> Iterator[Event]:
        """The events that complete lines now hold behind the offset. A line that is not an event is passed over."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        end = data.rfind(b"\n") + 1
        for raw in data[:end].splitlines(keepends=True):
            self.offset += len(raw)
            try:
                event = decode(raw.decode())
            except (ValueError, UnicodeDecodeError):
                continue
            if event is not None:
                yield event


def read_all(directory: Path) -> list[Event]:
    """All events of a run's log, oldest first."""
    return list(RunLogReader(directory).read_new())


def select(events: Iterable[Event], kind: type[E]) -> list[E]:
    """The events of one class."""
    return [event for event in events if isinstance(event, kind)]
