"""MLflow parameters, tags and metrics of a run: pure functions of settings, environment and events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from observability.cost import UNPAID
from observability.goodput import GoodputLedger
from observability.runlog import CheckpointCommitted, Evaluated, Event, RunEnded, Step, TrainingStarted
from training.config.schema import TrainingSettings
from training.tracking.locations import redact_uri
from training.tracking.point import Point

MAX_VALUE_CHARACTERS = 500
"""Longest parameter or tag value that every MLflow server accepts (the limit before MLflow 2.10)."""

_TIMES = ("data", "forward", "backward", "optimizer", "checkpoint")

STEPS, CHECKPOINTS = "train", "checkpoint"
"""Series of steps that grow with the run."""

CODE_TAGS = ("code.sha256", "code.revision", "code.dirty")
"""All tags of a run's own code."""


def milliseconds(seconds: float) -> int:
    """A timestamp in seconds as MLflow's integer milliseconds."""
    return round(seconds * 1000)


def redact(settings: TrainingSettings) -> TrainingSettings:
    """The settings without the credentials of the tracking server."""
    if settings.tracking.uri is None:
        return settings
    tracking = settings.tracking.model_copy(update={"uri": redact_uri(settings.tracking.uri)})
    return settings.model_copy(update={"tracking": tracking})


def parameters(settings: TrainingSettings) -> dict[str, str]:
    """Every setting as `section.key`: text unchanged, everything else as JSON, truncated to MLflow's limit."""
    return {key: truncate(value) for key, value in _flatten(redact(settings).model_dump(mode="json"), prefix="")}


def truncate(text: str) -> str:
    """The text, truncated with an ellipsis if it is longer than `MAX_VALUE_CHARACTERS`."""
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


def start_tags(settings: TrainingSettings, environment: dict[str, Any]) -> dict[str, str]:
    """Tags that are known when the driver starts; MLflow's UI displays those that begin with `mlflow.`."""
    tags = {
        "mlflow.user": environment["user"],
        "mlflow.source.name": "python -m training",
        "mlflow.source.type": "LOCAL",
        "host": environment["host"],
        "launcher": settings.scale.launcher,
        "platform_version": environment["platform_version"],
    }
    if git := environment["git"]:
        tags["mlflow.source.git.commit"] = git["revision"]
        tags["mlflow.source.git.branch"] = git["branch"]
        tags["mlflow.source.git.dirty"] = json.dumps(git["dirty"])
    return tags | code_tags(environment.get("code"))


def code_tags(code: Mapping[str, Any] | None) -> dict[str, str]:
    """Tags of a run's own code, from its record in the environment or its identity; the platform's own are MLflow's `mlflow.source`."""
    if code is None:
        return {}
    tags = {"code.sha256": code["sha256"]}
    if code["revision"] is not None:
        tags |= {"code.revision": code["revision"], "code.dirty": json.dumps(code["is_dirty"])}
    return tags


def training_tags(event: TrainingStarted) -> dict[str, str]:
    """Tags that are known when all ranks are ready. They may change when a run restarts."""
    return {
        "world": str(event.world),
        "parameters": str(event.parameters),
        "train_samples": str(event.train_samples),
        "total_steps": str(event.total_steps),
        "dataset_fingerprint": event.dataset_fingerprint,
    }


def series(event: Event) -> str:
    """The series of steps an event belongs to; empty for an event without metrics."""
    match event:
        case Step():
            return STEPS
        case Evaluated():
            return event.split
        case CheckpointCommitted():
            return CHECKPOINTS
        case _:
            return ""


def points(event: Event) -> list[Point]:
    """The metrics of an event, if any. Times are in seconds, rates in samples per second."""
    match event:
        case Step():
            values = _step_values(event)
            step = event.step
        case Evaluated():
            values = {"loss": event.loss, **event.metrics, "seconds": event.seconds}
            values = {f"{event.split}/{name}": value for name, value in values.items()}
            step = event.step
        case CheckpointCommitted():
            values = {
                "checkpoint/bytes": float(event.bytes),
                "checkpoint/stall_seconds": event.stall_seconds,
                "checkpoint/write_seconds": event.write_seconds,
            }
            step = event.step
        case _:
            return []
    timestamp = milliseconds(event.time)
    return [Point(key, value, timestamp, step) for key, value in values.items()]


def goodput_points(ledger: GoodputLedger, ended: RunEnded) -> list[Point]:
    """The goodput of a run at its end: the ratio, and the seconds of each class; and the dollars, where a price is known."""
    values = {"goodput/ratio": ledger.ratio}
    values |= {f"goodput/{name}_seconds": seconds for name, seconds in ledger.seconds.items()}
    if ledger.cost is not None:
        paid = {name: dollars for name, dollars in ledger.cost.by_class.items() if name not in UNPAID}
        values |= {"cost/dollars": ledger.cost.total, **{f"cost/{name}_dollars": paid[name] for name in paid}}
        values["cost/unpriced_seconds"] = ledger.cost.unpriced_seconds
    timestamp = milliseconds(ended.time)
    return [Point(key, value, timestamp, ended.step) for key, value in values.items()]


def _step_values(event: Step) -> dict[str, float]:
    values = {
        "train/loss": event.loss,
        **{f"train/{name}": value for name, value in event.metrics.items()},
        "train/gradient_norm": event.gradient_norm,
        "train/learning_rate": event.learning_rate,
        "train/samples_per_second": event.samples / event.seconds,
        "time/step_seconds": event.seconds,
    }
    if event.units:
        values["train/units_per_second"] = event.units / event.seconds
    if event.communication_seconds is not None:
        values["time/communication_seconds"] = event.communication_seconds
    return values | {f"time/{part}_seconds": getattr(event, f"{part}_seconds") for part in _TIMES}


def _flatten(tree: dict[str, Any], *, prefix: str) -> list[tuple[str, str]]:
    """The leaves of nested dictionaries by dotted key; an empty dictionary is a leaf."""
    leaves = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            leaves += _flatten(value, prefix=f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)))
    return leaves
