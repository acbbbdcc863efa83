"""Every metric of a training run: name, type, unit, labels, help. The exporters, boards, alerts and tests all read this one list.

Names follow Prometheus' conventions (https://prometheus.io/docs/practices/naming/): base units, the unit as suffix, `_total` on counters.
Accuracies are ratios from 0 to 1. Ages are left to the query, `time() - <timestamp>`, so that they stay true when nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: from a step of a small network on a CPU to one of a large model over many nodes."""

CHECKPOINT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds: from the copy of a small state to the writing of a sharded one to network storage."""


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric.

    Attributes:
        unit: base unit and suffix of the name; empty for a bare number.
        labels: names of its labels, all of which every sample has.
        buckets: upper bounds of a histogram's buckets in `unit`, ascending, without infinity; empty for the other kinds.
    """

    name: str
    kind: Kind
    unit: str = ""
    help: str
    labels: tuple[str, ...] = ("run",)
    buckets: tuple[float, ...] = ()


def _gauge(name: str, text: str, *, unit: str = "", labels: tuple[str, ...] = ()) -> MetricSpec:
    return MetricSpec(name=f"rtp_train_{name}", kind="gauge", unit=unit, help=text, labels=("run", *labels))


def _counter(name: str, text: str, *, unit: str = "", labels: tuple[str, ...] = ()) -> MetricSpec:
    return MetricSpec(name=f"rtp_train_{name}_total", kind="counter", unit=unit, help=text, labels=("run", *labels))


def _seconds_histogram(name: str, text: str, buckets: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=f"rtp_train_{name}_seconds", kind="histogram", unit="seconds", help=text, buckets=buckets)


INVENTORY: tuple[MetricSpec, ...] = (
    # Where the run stands.
    _gauge("step", "Optimizer steps committed to the weights so far."),
    _gauge("planned_steps", "Optimizer steps of the whole run.", unit="steps"),
    _gauge("epoch", "Epoch of the newest step, from 1."),
    _gauge("ranks", "Ranks that train, the world size.", unit="ranks"),
    _gauge("parameters", "Parameters of the model.", unit="parameters"),
    _gauge(
        "last_step_timestamp_seconds", "Unix time of the newest step; a stalled run stops moving it.", unit="seconds"
    ),
    # Speed, and where the time of a step goes.
    _seconds_histogram("step", "Wall time of an optimizer step on rank 0.", STEP_BUCKETS),
    _gauge("last_step_seconds", "Wall time of the newest optimizer step on rank 0.", unit="seconds"),
    _counter(
        "step_part_seconds",
        "Time of steps on rank 0 by part: data, forward, backward (with the all-reduce that overlaps it), optimizer, "
        "checkpoint, other.",
        unit="seconds",
        labels=("part",),
    ),
    _counter("samples", "Samples trained on, over all ranks.", unit="samples"),
    _gauge("samples_per_second", "Samples per second of the newest step, over all ranks.", unit="samples_per_second"),
    _gauge(
        "rank_samples_per_second",
        "Samples per second of a rank's own data and forward pass in the newest step, before it waits for its peers; "
        "a straggler is low here while all ranks end their steps together.",
        unit="samples_per_second",
        labels=("rank",),
    ),
    _gauge(
        "gpu_memory_bytes",
        "GPU memory of a rank by state: allocated by tensors, reserved by torch's caching allocator.",
        unit="bytes",
        labels=("rank", "state"),
    ),
    # Learning.
    _gauge("loss", "Mean training loss of the newest step's global batch, in nats."),
    _gauge("accuracy_ratio", "Share of the newest step's global batch that was classified rightly.", unit="ratio"),
    _gauge("gradient_norm", "Global L2 norm of the newest step's gradient, before clipping."),
    _gauge("learning_rate", "Learning rate of the newest step."),
    _counter("nonfinite_steps", "Steps whose loss or gradient was NaN or infinite; the weights stayed as they were."),
    _gauge("evaluation_loss", "Mean loss of the newest exact evaluation of a split, in nats.", labels=("split",)),
    _gauge(
        "evaluation_accuracy_ratio",
        "Accuracy of the newest exact evaluation of a split.",
        unit="ratio",
        labels=("split",),
    ),
    _gauge("evaluation_seconds", "Wall time of the newest evaluation of a split.", unit="seconds", labels=("split",)),
    # Checkpoints, restarts, delivery.
    _counter("checkpoints", "Checkpoints committed."),
    _seconds_histogram("checkpoint_stall", "Time the training loop stood still for a checkpoint.", CHECKPOINT_BUCKETS),
    _seconds_histogram("checkpoint_write", "Time from a checkpoint's copy to its commit.", CHECKPOINT_BUCKETS),
    _gauge("checkpoint_bytes", "Size of the newest committed checkpoint.", unit="bytes"),
    _gauge("checkpoint_step", "Step of the newest committed checkpoint."),
    _gauge(
        "checkpoint_timestamp_seconds", "Unix time of the newest commit; its age is time() minus this.", unit="seconds"
    ),
    _counter("checkpoints_refused", "Checkpoints that failed their verification when they were to be restored."),
    _counter("restarts", "Times that training was started again after an earlier attempt of the same run."),
    _counter(
        "lost_steps",
        "Steps whose work a restart threw away, since they came after the checkpoint restored.",
        unit="steps",
    ),
    _gauge("spool_backlog_bytes", "Bytes of the run's log that the tracking server has not had yet.", unit="bytes"),
)

BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in INVENTORY}


def find(name: str, *, labels: tuple[str, ...], kind: Kind | None = None) -> MetricSpec:
    """The metric of a name, if it is of the kind and has just the labels that are given.

    Raises:
        ValueError: the inventory has no such metric, or has it with other labels or of another kind.
    """
    spec = BY_NAME.get(name)
    if spec is None:
        raise ValueError(f"{name} is not in the inventory of metrics (observability.metrics.inventory)")
    if kind is not None and spec.kind != kind:
        raise ValueError(f"{name} is a {spec.kind}, not a {kind}")
    if set(labels) != set(spec.labels):
        raise ValueError(f"{name} has the labels {', '.join(spec.labels)}; got {', '.join(labels) or 'none'}")
    return spec
