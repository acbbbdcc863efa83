"""Events of a run on two ranks: a loss that falls, evaluations, checkpoints, and a restart if a test needs one."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observability.objective_metrics import Metric, ObjectiveInfo
from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Event,
    Notice,
    Phase,
    Restored,
    RunEnded,
    RunLogWriter,
    RunStarted,
    Step,
    TrainingStarted,
    WorkersFailed,
)

START = 1_790_000_000.0
STEPS_PER_EPOCH = 23
WEIGHTS_SHA256 = "5be1cf0a4f7d93a1" * 4
OBJECTIVE = ObjectiveInfo(
    metrics=(
        Metric(name="loss", label="cross-entropy (nats)"),
        Metric(name="accuracy", is_ratio=True, higher_is_better=True),
    ),
    ranked_by="accuracy",
)
NAME = "simple_cnn-digits-20260921-141320"
SETTINGS: dict[str, Any] = {
    "run": {"name": NAME, "seed": 0, "deterministic": True},
    "model": {"name": "simple_cnn", "options": {"width": 32}},
    "data": {"dataset": "digits", "path": None, "augment": True, "validation_fraction": 0.1},
    "optimizer": {"name": "adamw", "learning_rate": 0.003, "betas": [0.9, 0.999], "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 20},
    "loop": {"epochs": 10, "global_batch": 64, "accumulation": 1, "clip_norm": 1.0},
    "precision": {"mode": "fp32"},
    "scale": {"launcher": "ray", "workers": 2, "gpu": False},
    "checkpoint": {"every_steps": 50, "keep_last": 2},
}
ENVIRONMENT = {
    "platform_version": "0.1.0",
    "python": "3.11.7",
    "system": "Linux-6.1.0-x86_64",
    "host": "node-1",
    "cpu": {"model": "AMD EPYC 7B13", "count": 8, "available": 8},
    "memory_bytes": 33_000_000_000,
    "gpus": [],
    "packages": {"torch": "2.15.0", "ray": "2.60.0", "mlflow": None},
    "git": {"revision": "35be2af0" + "0" * 32, "branch": "main", "dirty": False},
}


@dataclass
class SampleRun:
    """Builds the events of a run, timed by a simulated clock.

    Attributes:
        steps: optimizer steps of the whole run.
        steps_per_epoch: steps per epoch; a validation follows each epoch.
    """

    steps: int = 230
    steps_per_epoch: int = STEPS_PER_EPOCH
    events: list[Event] = field(default_factory=list)
    _now: float = START
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    def start(self) -> SampleRun:
        """The driver starts Ray and the workers."""
        self.events.append(RunStarted(time=self._now, run=NAME, settings=SETTINGS, environment=ENVIRONMENT))
        self._phase("ray_start", "driver", 2.9)
        self._phase("workers_start", "driver", 1.1)
        return self

    def train(self, first: int, last: int) -> SampleRun:
        """A worker group becomes ready and trains steps `first` to `last`."""
        for name, seconds in [("imports", 1.6), ("connect", 0.12), ("data", 0.34), ("model", 0.05)]:
            self._phase(name, "rank 0", seconds)
        if first > 1:
            path = f"checkpoints/step-{first - 1:08d}"
            self.events.append(Restored(time=self._now, step=first - 1, path=path))
        self.events.append(
            TrainingStarted(
                time=self._now,
                world=2,
                start_step=first - 1,
                total_steps=self.steps,
                steps_per_epoch=self.steps_per_epoch,
                parameters=28_938,
                train_samples=1_437,
                dataset_fingerprint="c0ffee" + "ab" * 29,
                metrics_url="http://127.0.0.1:40123/metrics",
                objective=OBJECTIVE.record(),
            )
        )
        for step in range(first, last + 1):
            self._step(step, is_first=step == first)
        return self

    def crash(self) -> SampleRun:
        """A worker dies and the driver starts a new worker group."""
        self._now += 0.9
        reason = "rank 1 failed: killed by signal 9"
        self.events.append(WorkersFailed(time=self._now, attempt=0, reason=reason, restarts=True, cause="lost_process"))
        message = f"{reason}; restarting (restart 1 of 2 for lost processes)"
        self.events.append(Notice(time=self._now, level="warning", message=message))
        self._phase("workers_start", "driver", 1.0)
        return self

    def finish(self) -> SampleRun:
        """The run ends after testing and saving its weights."""
        self._phase("finish", "rank 0", 0.05)
        self._evaluated("test", self.steps, samples=180)
        self.events.append(RunEnded(time=self._now, status="done", step=self.steps, weights_sha256=WEIGHTS_SHA256))
        return self

    def interrupt(self, step: int) -> SampleRun:
        """The run is interrupted and commits step `step`."""
        self.events.append(RunEnded(time=self._now, status="interrupted", step=step))
        return self

    def pause(self, seconds: float) -> SampleRun:
        """Let time pass, as between a stop and a resume."""
        self._now += seconds
        return self

    def _phase(self, name: str, process: str, seconds: float) -> None:
        self.events.append(Phase(time=self._now, name=name, process=process))
        self._now += seconds

    def _step(self, step: int, *, is_first: bool) -> None:
        share = step / self.steps
        noise = self._random.gauss(0, 1)
        loss = 0.04 + 2.28 * math.exp(-9 * share) + 0.05 * abs(noise) * math.exp(-2 * share)
        has_checkpoint = step % 50 == 1 and step > 1
        parts: dict[str, Any] = {
            "data_seconds": 0.0011 + 0.0004 * self._random.random(),
            "forward_seconds": 0.0042 + 0.0006 * self._random.random() + (0.05 if is_first else 0),
            "backward_seconds": 0.0079 + 0.0015 * self._random.random() + (0.03 if is_first else 0),
            "optimizer_seconds": 0.0013 + 0.0002 * self._random.random(),
            "checkpoint_seconds": 0.0019 if has_checkpoint else 0.0,
        }
        seconds = sum(parts.values()) + 0.0007
        self._now += seconds
        self.events.append(
            Step(
                time=self._now,
                step=step,
                epoch=(step - 1) // self.steps_per_epoch + 1,
                loss=loss,
                metrics={"accuracy": min(1.0, max(0.06, 1 - 0.42 * loss))},
                gradient_norm=0.2 + 1.9 * loss * (1 + 0.3 * self._random.random()),
                learning_rate=0.003 * (step / 20 if step < 20 else 0.5 * (1 + math.cos(math.pi * share)) + 0.005),
                samples=64 if step % self.steps_per_epoch else 29,
                seconds=seconds,
                rank_seconds=[parts["data_seconds"] + parts["forward_seconds"], 0.0061],
                **parts,
            )
        )
        if step % 50 == 0:
            self.events.append(
                CheckpointCommitted(
                    time=self._now,
                    step=step,
                    path=f"checkpoints/step-{step:08d}",
                    bytes=353_120,
                    stall_seconds=0.0019,
                    write_seconds=0.012 + 0.004 * self._random.random(),
                )
            )
        if step % self.steps_per_epoch == 0:
            self._evaluated("validation", step, samples=180)

    def _evaluated(self, split: str, step: int, *, samples: int) -> None:
        self._now += 0.013
        loss = 0.09 + 1.9 * math.exp(-8 * step / self.steps)
        self.events.append(
            Evaluated(
                time=self._now,
                split=split,
                step=step,
                epoch=-(-step // self.steps_per_epoch),
                loss=loss,
                metrics={"accuracy": 1 - 0.27 * loss},
                samples=samples,
                seconds=0.013,
            )
        )


def finished_run(steps: int = 230) -> list[Event]:
    """The events of a run without failures."""
    run = SampleRun(steps=steps, steps_per_epoch=max(STEPS_PER_EPOCH, steps // 20))
    return run.start().train(1, steps).finish().events


def restarted_run() -> list[Event]:
    """The events of a run that lost a worker at step 131, restarted from 100, was stopped at 170 and resumed a minute later."""
    run = SampleRun().start().train(1, 131).crash().train(101, 170).interrupt(170).pause(60)
    return run.start().train(171, 230).finish().events


def write_run(folder: Path, events: Sequence[Event]) -> Path:
    """Write events to a run's event log; returns the run directory."""
    with RunLogWriter(folder) as log:
        log.write(*events)
    return folder
