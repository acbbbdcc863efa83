"""The event log of a run: `events.jsonl`, one JSON object per line.

The driver and rank 0 append events; the progress view, the MLflow follower, the monitor and the report read them. The file is also the
follower's spool, because undelivered events stay in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from observability.event_log import Decoder, Event, LogReader, LogWriter, encode, select

__all__ = ["Event", "encode", "select"]

FILE_NAME = "events.jsonl"


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The driver accepted the settings. A resumed run has one per start.

    Attributes:
        run: its name.
        settings: all settings, with their defaults.
        environment: interpreter, packages, machine and code, as `training.environment` describes them.
        submitted: Unix time at which the driver's job was submitted to a cluster; 0 without a job, or if it is not known.
        dollars_per_hour: price of the machines, or of the parts of them, that this driver and its ranks hold; None if it is not known.
        dollars_per_worker_hour: price that each rank adds to it, of a run whose number of ranks changes.
    """

    kind: ClassVar[str] = "run_started"
    run: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    submitted: float = 0.0
    dollars_per_hour: float | None = None
    dollars_per_worker_hour: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """A phase of start-up or shutdown began, e.g. `imports`, `ray_start`, `workers_start`, `data`, `first_batch`, `train`, `finish`.

    Attributes:
        name: its name.
        process: the process that is in it: `driver` or `rank 0`.
    """

    kind: ClassVar[str] = "phase"
    name: str
    process: str = "driver"


@dataclass(frozen=True, kw_only=True)
class TrainingStarted(Event):
    """All ranks are ready.

    Attributes:
        world: world size, the number of ranks.
        start_step: optimizer steps already in the weights.
        total_steps: optimizer steps of the whole run.
        steps_per_epoch: optimizer steps of an epoch.
        parameters: number of the model's parameters.
        train_samples: samples of the training split.
        dataset_fingerprint: hash of the dataset's files, or of how it is made.
        metrics_url: where rank 0 serves its metrics; empty if it does not.
        objective: an `observability.objective_metrics.ObjectiveInfo`, as JSON.
    """

    kind: ClassVar[str] = "training_started"
    world: int
    start_step: int
    total_steps: int
    steps_per_epoch: int
    parameters: int
    train_samples: int
    dataset_fingerprint: str
    metrics_url: str = ""
    objective: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step(Event):
    """One optimizer step.

    Attributes:
        step: number of the optimizer step in the run, from 1.
        epoch: epoch of the step, from 1.
        loss: mean loss over the global batch.
        metrics: the objective's other metrics over the global batch, by name.
        gradient_norm: global norm before clipping.
        learning_rate: learning rate of the step.
        samples: samples in the global batch.
        units: what the objective counts instead of samples, e.g. tokens, in the global batch; 0 if it counts samples.
        time: Unix time at which the step ended; steps are written a little later, in batches.
        seconds: wall time on rank 0 since the previous step ended, including reporting and checkpoints between them.
        rank_seconds: seconds that each rank spent on data loading and the forward pass, which do not wait for other ranks.
        data_seconds, forward_seconds, backward_seconds, optimizer_seconds, checkpoint_seconds: parts of `seconds` on rank 0; backward
            includes the overlapping all-reduce.
        communication_seconds: the part in which rank 0 had its own gradients and waited for its peers'; None in older logs, where
            backward includes it.
    """

    kind: ClassVar[str] = "step"
    step: int
    epoch: int
    loss: float
    gradient_norm: float
    learning_rate: float
    samples: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    units: float = 0.0
    data_seconds: float = 0.0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    communication_seconds: float | None = None
    optimizer_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    rank_seconds: list[float] = field(default_factory=list)

    def value(self, metric: str) -> float:
        """A metric of the objective, NaN if the step has no such metric."""
        return self.loss if metric == "loss" else self.metrics.get(metric, math.nan)


@dataclass(frozen=True, kw_only=True)
class FlopsCounted(Event):
    """Rank 0 has counted the FLOPs of its first micro-batch; each start of a worker group counts anew.

    Attributes:
        per_sample: FLOPs of forward and backward pass.
        device: name of the device of a rank.
        peak: FLOP/s that the devices of all ranks can reach; 0 if it is unknown.
    """

    kind: ClassVar[str] = "flops_counted"
    per_sample: float
    device: str
    peak: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RanksMeasured(Event):
    """What the ranks measured of themselves, by rank. The lists about GPUs are empty on CPUs.

    Attributes:
        step: newest step.
        communication_seconds: exposed communication since the previous event of this kind, or the start of the worker group.
        gpu_utilization: from 0 to 1; NaN if the driver does not tell.
        gpu_allocated_bytes, gpu_reserved_bytes: memory of tensors, and of PyTorch's caching allocator.
    """

    kind: ClassVar[str] = "ranks_measured"
    step: int
    communication_seconds: list[float]
    gpu_utilization: list[float] = field(default_factory=list)
    gpu_allocated_bytes: list[float] = field(default_factory=list)
    gpu_reserved_bytes: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    """The result of an exact evaluation of a split (`validation` or `test`) after `step` steps.

    Attributes:
        split: `validation` or `test`.
        step: optimizer steps in the evaluated weights.
        epoch: epoch of that step, from 1.
        loss: mean loss over the split.
        samples: samples of the split.
        seconds: wall time of the evaluation.
        metrics: the objective's metrics other than the loss, by name.
        is_asynchronous: whether another process measured it while the training went on; the event then comes after later steps.
    """

    kind: ClassVar[str] = "evaluated"
    split: str
    step: int
    epoch: int
    loss: float
    samples: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    is_asynchronous: bool = False

    def value(self, metric: str) -> float:
        """A metric of the objective, NaN if the evaluation has no such metric."""
        return self.loss if metric == "loss" else self.metrics.get(metric, math.nan)


@dataclass(frozen=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint with its manifest is on storage.

    Attributes:
        step: optimizer steps in its weights.
        path: its folder.
        bytes: its size.
        stall_seconds: time that the loop was blocked.
        write_seconds: time that the writer took.
    """

    kind: ClassVar[str] = "checkpoint_committed"
    step: int
    path: str
    bytes: int
    stall_seconds: float
    write_seconds: float


@dataclass(frozen=True, kw_only=True)
class CheckpointUploaded(Event):
    """A checkpoint with its manifest is also in the run's bucket.

    Attributes:
        step: optimizer steps in its weights.
        location: its URL in the bucket.
        bytes: its size.
        seconds: time since the begin of its upload.
    """

    kind: ClassVar[str] = "checkpoint_uploaded"
    step: int
    location: str
    bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CheckpointUploadFailed(Event):
    """An attempt to copy checkpoints to the run's bucket failed after its retries, or a damaged checkpoint was left out."""

    kind: ClassVar[str] = "checkpoint_upload_failed"
    location: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Restored(Event):
    """The run resumes from a checkpoint.

    Attributes:
        step: optimizer steps in its weights.
        path: folder of the checkpoint.
        skipped: newer checkpoints that failed verification, each with the reason.
        weights_sha256: hash of the file with its weights.
        from_rank: rank that had the state in memory when it lost its peers; None for a checkpoint, which has a path.
    """

    kind: ClassVar[str] = "restored"
    step: int
    path: str
    weights_sha256: str = ""
    skipped: list[str] = field(default_factory=list)
    from_rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkersFailed(Event):
    """The driver knows that a worker group failed.

    Attributes:
        attempt: restarts by this driver before it.
        reason: which rank failed and why, in one line.
        restarts: whether the driver starts another worker group.
        cause: e.g. `lost_process` (`training.recovery.causes`); empty in older logs.
        delay_seconds: that the driver waits before it does.
    """

    kind: ClassVar[str] = "workers_failed"
    attempt: int
    reason: str
    restarts: bool
    cause: str = ""
    delay_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class WorkersMoved(Event):
    """A worker group has committed and ended, and another one continues on other workers: the run is resized, or a node is about to go.

    Attributes:
        step: the committed step.
        reason: in one line.
    """

    kind: ClassVar[str] = "workers_moved"
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """A message to the user.

    Attributes:
        level: `info`, `warning` or `error`.
        message: the text.
    """

    kind: ClassVar[str] = "notice"
    level: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ProfileAnswered(Event):
    """What has become of a request for a profile; the newest event of a request holds.

    Attributes:
        request: its ID.
        state: `recording`, then `done`, or `refused`.
        text: which steps are recorded, the verdict, or the reason of the refusal; may have several lines.
        step: first profiled step; 0 if refused.
        folder: folder of the profile as the driver sees it; empty until it is done.
        is_remote: whoever asked reads the driver's output and not the run's folder, so the driver reads the traces.
    """

    kind: ClassVar[str] = "profile_answered"
    request: str
    state: str
    text: str
    step: int = 0
    folder: str = ""
    is_remote: bool = False


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


class Emit(Protocol):
    """Accepts events, oldest first; passing several at once costs less than one at a time."""

    def __call__(self, *events: Event) -> None:
        """Accept the events."""
        ...


decode = Decoder(
    RunStarted,
    Phase,
    TrainingStarted,
    Step,
    FlopsCounted,
    RanksMeasured,
    Evaluated,
    CheckpointCommitted,
    CheckpointUploaded,
    CheckpointUploadFailed,
    Restored,
    WorkersFailed,
    WorkersMoved,
    Notice,
    ProfileAnswered,
    RunEnded,
)
"""Decodes a line of a run's event log."""


class RunLogWriter(LogWriter):
    """Appends events to a run's event log. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / FILE_NAME, on_torn_line=_torn)

    def __enter__(self) -> RunLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunLogReader(LogReader):
    """Follows a run's event log as it grows, from a byte offset."""

    def __init__(self, directory: Path, *, offset: int = 0) -> None:
        super().__init__(directory / FILE_NAME, decode, offset=offset)


def read_all(directory: Path) -> list[Event]:
    """All events of a run's event log, oldest first."""
    return list(RunLogReader(directory).read_new())


def _torn(message: str) -> Notice:
    return Notice(level="warning", message=message)
