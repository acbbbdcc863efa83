"""Every metric of a training run or a search: name, type, unit, labels, help. Exporters, dashboards, alerts and tests all read this list.

Names follow Prometheus' conventions (https://prometheus.io/docs/practices/naming/): base units, the unit as suffix, `_total` on counters.
Ratios are from 0 to 1. Metrics hold timestamps, not ages: a query computes `time() - <timestamp>`, which stays correct when the
run records nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: from a step of a small network on a CPU to a step of a large model on many nodes."""

CHECKPOINT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
"""Seconds: from copying a small state in memory to writing a sharded one to network storage."""


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric.

    Attributes:
        unit: base unit and suffix of the name; empty if the metric has none.
        labels: label names; every sample has all of them.
        buckets: upper bounds of a histogram's buckets in `unit`, ascending, without infinity; empty for other kinds.
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


def _of_search(name: str, text: str, *, unit: str = "", labels: tuple[str, ...] = ()) -> MetricSpec:
    return MetricSpec(name=f"rtp_search_{name}", kind="gauge", unit=unit, help=text, labels=("search", *labels))


def _seconds_histogram(name: str, text: str, buckets: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=f"rtp_train_{name}_seconds", kind="histogram", unit="seconds", help=text, buckets=buckets)


INVENTORY: tuple[MetricSpec, ...] = (
    # Progress.
    _gauge("step", "Optimizer steps completed so far."),
    _gauge("planned_steps", "Optimizer steps planned for the whole run.", unit="steps"),
    _gauge("epoch", "Epoch of the newest step, counted from 1."),
    _gauge("ranks", "World size: number of ranks.", unit="ranks"),
    _gauge("parameters", "Number of model parameters.", unit="parameters"),
    _gauge(
        "last_step_timestamp_seconds",
        "Unix time of the newest step; stops increasing when the run stalls.",
        unit="seconds",
    ),
    # Speed, and the breakdown of step time.
    _seconds_histogram("step", "Wall time of an optimizer step on rank 0.", STEP_BUCKETS),
    _gauge("last_step_seconds", "Wall time of the newest optimizer step on rank 0.", unit="seconds"),
    _counter(
        "step_part_seconds",
        "Step time on rank 0 by part: data, forward, backward (including the overlapping all-reduce), communication (waiting "
        "for the peers' gradients), optimizer, checkpoint, other.",
        unit="seconds",
        labels=("part",),
    ),
    _counter("samples", "Training samples processed by all ranks.", unit="samples"),
    _gauge("samples_per_second", "Samples per second of all ranks in the newest step.", unit="samples_per_second"),
    _gauge(
        "rank_samples_per_second",
        "Samples per second of a rank in the newest step, over the time of its data loading and forward pass only. "
        "These do not wait for other ranks, so a straggler shows a low value.",
        unit="samples_per_second",
        labels=("rank",),
    ),
    _counter(
        "rank_communication_seconds",
        "Exposed communication of a rank: time in which it had its own gradients and waited for its peers'. The rank with the "
        "least shows the network, the others also wait for slower ranks.",
        unit="seconds",
        labels=("rank",),
    ),
    _gauge(
        "flops_per_second",
        "FLOP/s of the model on all ranks in the newest step, as torch counts its matrix products.",
        unit="flops_per_second",
    ),
    _gauge(
        "mfu_ratio",
        "Model FLOPs utilization in the newest step: its FLOP/s as a share of what the devices can reach.",
        unit="ratio",
    ),
    _gauge(
        "gpu_utilization_ratio",
        "Share of the last second in which a kernel ran on a rank's GPU.",
        unit="ratio",
        labels=("rank",),
    ),
    _gauge(
        "gpu_memory_bytes",
        "GPU memory of a rank by state: allocated by tensors, or reserved by PyTorch's caching allocator.",
        unit="bytes",
        labels=("rank", "state"),
    ),
    _counter(
        "units",
        "What the objective counts, processed by all ranks: tokens of a language model, else samples.",
        unit="units",
        labels=("unit",),
    ),
    # Optimization and the objective's metrics.
    _gauge("loss", "Mean training loss over the newest step's global batch."),
    _gauge(
        "metric",
        "Another metric of the objective over the newest step's global batch, e.g. accuracy from 0 to 1.",
        labels=("metric",),
    ),
    _gauge("gradient_norm", "Global L2 norm of the gradients in the newest step, before clipping."),
    _gauge("learning_rate", "Learning rate of the newest step."),
    _counter("nonfinite_steps", "Steps with a NaN or infinite loss or gradient; they do not change the weights."),
    _gauge("evaluation_loss", "Mean loss of a split in its newest exact evaluation.", labels=("split",)),
    _gauge(
        "evaluation_metric",
        "Another metric of the objective, of a split in its newest exact evaluation.",
        labels=("split", "metric"),
    ),
    _gauge("evaluation_seconds", "Wall time of the newest evaluation of a split.", unit="seconds", labels=("split",)),
    # Checkpoints, restarts, delivery to MLflow.
    _counter("checkpoints", "Checkpoints committed."),
    _seconds_histogram("checkpoint_stall", "Time the training loop was blocked by a checkpoint.", CHECKPOINT_BUCKETS),
    _seconds_histogram(
        "checkpoint_write", "Time from the in-memory copy of a checkpoint to its commit.", CHECKPOINT_BUCKETS
    ),
    _gauge("checkpoint_bytes", "Size of the newest committed checkpoint.", unit="bytes"),
    _gauge("checkpoint_step", "Step of the newest committed checkpoint."),
    _gauge("checkpoint_timestamp_seconds", "Unix time of the newest checkpoint commit.", unit="seconds"),
    _counter("checkpoint_uploads", "Checkpoints copied to the run's bucket."),
    _seconds_histogram(
        "checkpoint_upload",
        "Time from the begin of a checkpoint's upload to its commit in the bucket.",
        CHECKPOINT_BUCKETS,
    ),
    _counter(
        "checkpoint_upload_failures",
        "Attempts to copy checkpoints to the run's bucket that failed after their retries, and damaged checkpoints that were left out.",
    ),
    _gauge(
        "remote_checkpoint_step", "Step of the newest checkpoint that the run copied to its bucket; 0 before the first."
    ),
    _gauge(
        "remote_checkpoint_timestamp_seconds",
        "Unix time at which the newest checkpoint was complete in the run's bucket.",
        unit="seconds",
    ),
    _counter("checkpoints_refused", "Checkpoints that failed verification during a restore."),
    _counter("restarts", "Restarts of training after the first attempt of the run."),
    _counter(
        "lost_steps",
        "Steps lost to restarts, because they came after the restored checkpoint.",
        unit="steps",
    ),
    _counter(
        "wall_seconds",
        "Wall time of the run by what it was spent on: the classes of observability/time_classes.py. Includes what was lost later: the "
        "goodput is the productive part less rtp_train_repeated_seconds_total, divided by the sum of all classes.",
        unit="seconds",
        labels=("class",),
    ),
    _counter(
        "repeated_seconds",
        "Of the wall time of each class, what was lost because a restart repeated its steps.",
        unit="seconds",
        labels=("class",),
    ),
    _counter(
        "cost_dollars",
        "US dollars that the run cost, by class of its wall time, as they were spent; only where a price is known. Includes what was "
        "lost later, which is rtp_train_repeated_dollars_total.",
        unit="dollars",
        labels=("class",),
    ),
    _counter(
        "repeated_dollars",
        "Of the dollars of each class, what was lost because a restart repeated its steps.",
        unit="dollars",
        labels=("class",),
    ),
    _gauge(
        "spool_backlog_bytes", "Bytes of the run's event log not yet delivered to the tracking server.", unit="bytes"
    ),
    # A search, from its driver. Its trials are runs of their own, with the metrics above; `run` is the trial's name.
    _of_search("planned_trials", "Trials of the whole search.", unit="trials"),
    _of_search(
        "trials", "Trials by status: running (not ended), done, stopped, failed.", unit="trials", labels=("status",)
    ),
    _of_search(
        "best",
        "Best value so far of the first objective, which the label metric names; NaN before the first result. Ratios are "
        "from 0 to 1.",
        labels=("metric",),
    ),
    _of_search("worker_seconds", "Seconds of all workers of all trials.", unit="seconds"),
    _of_search(
        "time_left_seconds",
        "Estimated time left, NaN if unknown; an upper limit where trials or the search may end early.",
        unit="seconds",
    ),
    _of_search(
        "last_evaluation_timestamp_seconds",
        "Unix time of the newest evaluation of any trial, or of the driver's start before it; stops increasing when the "
        "search stalls.",
        unit="seconds",
    ),
)

_BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in INVENTORY}


def get_spec(name: str, *, labels: tuple[str, ...], kind: Kind | None = None) -> MetricSpec:
    """Return the metric called `name` after checking its kind and labels.

    Raises:
        ValueError: the inventory has no such metric, or has it with another kind or other labels.
    """
    spec = _BY_NAME.get(name)
    if spec is None:
        raise ValueError(f"unknown metric '{name}': observability/metrics/inventory.py must declare it")
    if kind is not None and spec.kind != kind:
        raise ValueError(f"{name} is a {spec.kind}, not a {kind}")
    if set(labels) != set(spec.labels):
        raise ValueError(f"{name} needs the labels {', '.join(spec.labels)}; got {', '.join(labels) or 'none'}")
    return spec
