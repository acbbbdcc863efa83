"""The event log of a run: `events.jsonl`, one JSON object per line.

The driver and rank 0 append events; the progress view, the MLflow follower, the monitor and the report read them. The file is also the
follower's spool, because undelivered events stay in it. Events are appended by one `write` call on a file opened with `O_APPEND`, so
several processes of one machine can share the log. Readers wait for the rest of an incomplete last line, and skip one that was cut off by
a full disk: the next writer ends it and logs a notice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from observability.line_file import LineFile, read_lines

FILE_NAME = "events.jsonl"
_TORN = f"the last line of {FILE_NAME} was incomplete and is skipped: the disk was full, or the machine stopped"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of the events of a run.

    Attributes:
        time: Unix time.
    """

    kind: ClassVar[str] = ""
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The driver accepted the settings. A resumed run has one per start."""

    kind: ClassVar[str] = "run_started"
    run: str
    settings: dict[str, Any]
    environment: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """A phase of start-up or shutdown began, e.g. `imports`, `ray_start`, `workers_start`, `data`, `first_batch`, `train`, `finish`."""

    kind: ClassVar[str] = "phase"
    name: str
    process: str = "driver"


@dataclass(frozen=True, kw_only=True)
class TrainingStarted(Event):
    """All ranks are ready. `start_step` is the number of optimizer steps already in the weights."""

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
        step: number of the optimizer step in the run, from 1.
        epoch: epoch of the step, from 1.
        loss: mean loss over the global batch.
        accuracy: accuracy over the global batch, 0 to 1.
        gradient_norm: global norm before clipping.
        samples: samples in the global batch.
        time: Unix time at which the step ended; steps are written a little later, in batches.
        seconds: wall time on rank 0 since the previous step ended, including reporting and checkpoints between them.
        rank_seconds: seconds that each rank spent on data loading and the forward pass, which do not wait for other ranks.
        data_seconds, forward_seconds, backward_seconds, optimizer_seconds, checkpoint_seconds: parts of `seconds` on rank 0; backward
            includes the overlapping all-reduce.
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
    """The result of an exact evaluation of a split (`validation` or `test`) after `step` steps."""

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
    """A checkpoint with its manifest is on storage. The loop was blocked for `stall_seconds`; the writer took `write_seconds`."""

    kind: ClassVar[str] = "checkpoint_committed"
    step: int
    path: str
    bytes: int
    stall_seconds: float
    write_seconds: float


@dataclass(frozen=True, kw_only=True)
class Restored(Event):
    """The run resumes from a checkpoint; `skipped` lists newer ones that failed verification, with the reason."""

    kind: ClassVar[str] = "restored"
    step: int
    path: str
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """A message to the user. `level` is `info`, `warning` or `error`."""

    kind: ClassVar[str] = "notice"
    level: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """The driver ended the run.

    Attributes:
        status: `done`, `interrupted` or `failed`.
        step: last committed step.
        weights_sha256: hash of the final weights; empty unless done.
        message: why the run failed or was interrupted; empty if done.
    """

    kind: ClassVar[str] = "run_ended"
    status: str
    step: int
    weights_sha256: str = ""
    message: str = ""


E = TypeVar("E", bound=Event)
_CLASSES: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (RunStarted, Phase, TrainingStarted, Step, Evaluated, CheckpointCommitted, Restored, Notice, RunEnded)
}
_FIELDS: dict[str, frozenset[str]] = {kind: frozenset(f.name for f in fields(cls)) for kind, cls in _CLASSES.items()}


_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Emit(Protocol):
    """Accepts events, oldest first; passing several at once costs less than one at a time."""

    def __call__(self, *events: Event) -> None:
        """Accept the events."""
        ...


def encode(event: Event) -> str:
    """Encode an event as one line of JSON without a newline. NaN and infinity become `NaN` and `Infinity`, Python's extension of JSON."""
    return _to_json({"kind": event.kind, **vars(event)})


def decode(line: str) -> Event | None:
    """Decode a line. Returns None for an unknown kind and drops unknown fields, both of which newer versions may write.

    Raises:
        ValueError: the line is not a JSON object or lacks a field.
    """
    record = json.loads(line)
    cls = _CLASSES.get(record.pop("kind", ""))
    if cls is None:
        return None
    known = _FIELDS[cls.kind]
    try:
        return cls(**{k: v for k, v in record.items() if k in known})
    except TypeError as error:
        raise ValueError(f"event of kind {cls.kind}: {error}") from error


class RunLogWriter:
    """Appends events to a run's event log. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = LineFile(directory / FILE_NAME)

    def write(self, *events: Event) -> None:
        """Append events in one system call.

        Raises:
            OSError: the log cannot be written; of the last event a part may be in it.
        """
        if self._file.ends_in_torn_line():
            events = (Notice(level="warning", message=_TORN), *events)
        self._file.append("".join(f"{encode(event)}\n" for event in events).encode())

    def close(self) -> None:
        """Close the log; further calls do nothing."""
        self._file.close()

    def __enter__(self) -> RunLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunLogReader:
    """Follows a run's event log as it grows, from a byte offset."""

    def __init__(self, directory: Path, *, offset: int = 0) -> None:
        self._path = directory / FILE_NAME
        self.offset = offset
        """Bytes read so far; a new reader with this offset continues here."""

    def read_new(self) -> Iterator[Event]:
        """Yield the events of all complete lines after the offset; skip lines that are not events."""
        for line, end in read_lines(self._path, offset=self.offset):
            self.offset = end
            try:
                event = decode(line.decode())
            except ValueError:
                continue
            if event is not None:
                yield event


def read_all(directory: Path) -> list[Event]:
    """All events of a run's event log, oldest first."""
    return list(RunLogReader(directory).read_new())


def select(events: Iterable[Event], kind: type[E]) -> list[E]:
    """The events of class `kind`."""
    return [event for event in events if isinstance(event, kind)]
