"""Writes the folder of a run like a real run, and computes the metrics that MLflow should have."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import torch
from mlflow import MlflowClient

from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Event,
    Phase,
    Restored,
    RunEnded,
    RunLogWriter,
    RunStarted,
    Step,
    TrainingStarted,
    read_all,
)
from training import environment
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.data.types import SampleSpec
from training.export import save_safetensors, weights_sha256
from training.models.registry import build_model
from training.rundir import RunDirectory
from training.tracking.model import register_model
from training.tracking.payload import points

STEPS_PER_EPOCH = 20
START = 1_790_000_000.0
SPEC = SampleSpec(shape=(1, 8, 8), outputs=10)


def settings(
    folder: Path,
    uri: str | None,
    *,
    name: str = "run",
    model: dict[str, Any] | None = None,
    dense_points: int | None = 500,
) -> TrainingSettings:
    """Settings of a small run in a folder, tracked at a URI."""
    return TrainingSettings.model_validate(
        {
            "run": {"name": name, "directory": folder},
            "model": model or {"name": "mlp", "options": {"hidden": [16]}},
            "tracking": {"uri": uri, "experiment": f"test-{folder.name}", "dense_points": dense_points},
        }
    )


@dataclass
class RecordedRun:
    """Writes a run's log and files step by step, with fixed timestamps."""

    settings: TrainingSettings

    def __post_init__(self) -> None:
        self.directory = RunDirectory.create(self.settings, now=datetime.now(UTC)).path

    def write(self, *events: Event) -> None:
        """Append events."""
        with RunLogWriter(self.directory) as log:
            for event in events:
                log.write(event)

    def start(self, *, at_step: int = 0, code: RunCode | None = None, dollars_per_hour: float | None = None) -> None:
        """Log the start of driver and training, with the run's own code; from a checkpoint if `at_step` is not 0."""
        time = START + at_step
        described = environment.describe(None if code is None else code.describe())
        settings = self.settings.model_dump(mode="json")
        self.write(
            RunStarted(
                time=time, run=self.directory.name, settings=settings, environment=described,
                dollars_per_hour=dollars_per_hour,
            ),
            Phase(time=time, name="data"),
            *([Restored(time=time, step=at_step, path=f"checkpoints/step-{at_step:08}")] if at_step else []),
            TrainingStarted(
                time=time, world=2, start_step=at_step, total_steps=100, steps_per_epoch=STEPS_PER_EPOCH,
                parameters=1210, train_samples=1000, dataset_fingerprint="f" * 64,
            ),
        )  # fmt: skip

    def train(self, first: int, last: int, *, delay: float = 0.0) -> None:
        """Log steps `first` to `last`, with evaluation and checkpoint at each epoch's end; `delay` shifts the timestamps."""
        self.write(*(event for step in range(first, last + 1) for event in _step(step, delay)))

    def end(self, status: str = "done", *, step: int = 100, message: str = "", seed: int = 0) -> None:
        """Log the end and write a report; if `status` is "done", also export the weights initialised with `seed`."""
        digest = self._export(seed) if status == "done" else ""
        (self.directory / "report.html").write_text("<!doctype html><title>report</title>", encoding="utf-8")
        self.write(
            RunEnded(time=START + 1000, status=status, step=step, weights_sha256=digest, message=message),
            Phase(time=START + 1001, name="after"),
        )

    def expected(self) -> dict[str, list[tuple[int, float]]]:
        """The (step, value) pairs that MLflow should have for each metric: each step once, with its first value."""
        expected: dict[str, dict[int, float]] = {}
        for event in read_all(self.directory):
            for point in points(event):
                expected.setdefault(point.key, {}).setdefault(point.step, point.value)
        return {key: sorted(values.items()) for key, values in expected.items()}

    def _export(self, seed: int) -> str:
        folder = self.directory / "model"
        folder.mkdir(exist_ok=True)
        torch.manual_seed(seed)
        module = build_model(self.settings.model, SPEC)
        digest = weights_sha256(module)
        save_safetensors(module, folder / "model.safetensors", {"sha256": digest})
        description = {
            "model": self.settings.model.model_dump(mode="json"),
            "shape": list(SPEC.shape),
            "samples": asdict(SPEC),
            "weights_sha256": digest,
        }
        (folder / "model.json").write_text(json.dumps(description), encoding="utf-8")
        return digest


def started_run(chosen: TrainingSettings, *, trained: int = 0) -> RecordedRun:
    """A run that has started, and has trained so many steps."""
    run = RecordedRun(chosen)
    run.start()
    run.train(1, trained)
    return run


def history(uri: str, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """The (step, value) pairs of each metric of a run in a store, without those of the system and the goodput."""
    client = MlflowClient(tracking_uri=uri)
    keys = [key for key in client.get_run(run_id).data.metrics if not key.startswith(("system/", "goodput/"))]
    return {key: sorted((m.step, m.value) for m in client.get_metric_history(run_id, key)) for key in keys}


def _step(step: int, delay: float) -> list[Event]:
    time = START + step + delay
    epoch = 1 + (step - 1) // STEPS_PER_EPOCH
    loss = 2.3 * math.exp(-step / 50)
    events: list[Event] = [
        Step(
            time=time, step=step, epoch=epoch, loss=loss, metrics={"accuracy": 1 - loss / 2.4}, gradient_norm=1 / step,
            learning_rate=1e-3, samples=64, seconds=0.01 + delay, data_seconds=0.001,
        )
    ]  # fmt: skip
    if step % STEPS_PER_EPOCH == 0:
        evaluation = {"loss": loss, "metrics": {"accuracy": 0.9}, "samples": 100, "seconds": 0.1}
        written = {"bytes": 1000, "stall_seconds": 0.001, "write_seconds": 0.01 + delay}
        events.append(Evaluated(time=time, split="validation", step=step, epoch=epoch, **evaluation))  # type: ignore[arg-type]
        events.append(CheckpointCommitted(time=time, step=step, path="x", **written))  # type: ignore[arg-type]
    return events


class InProcessRegistration:
    """Registers models in this process, in place of `ModelRegistration`: a process for each would import torch for each."""

    def register(self, run_directory: Path, *, uri: str, run_id: str, name: str) -> str:
        """Register the model."""
        mlflow.set_tracking_uri(uri)
        return register_model(run_directory, run_id=run_id, name=name)

    def cancel(self) -> None:
        """Do nothing: no process waits."""
