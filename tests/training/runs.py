"""Small real runs for tests: settings, and a rank run in this process or in a new one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from observability.progress import ProgressView
from observability.runlog import Step, TrainingStarted, read_all, select
from tests.training.launch.ranks import run_world
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankPlace, RankTask
from training.process_group import process_group
from training.rundir import RunDirectory
from training.supervisor import Supervisor
from training.worker import run_rank

ALONE = RankPlace(rank=0, world=1, local_rank=0, local_world=1, master_address="127.0.0.1", master_port=0)


LANGUAGE: dict[str, dict[str, Any]] = {
    "model": {"name": "transformer", "options": {"width": 32, "layers": 2, "heads": 2, "dropout": 0.0}},
    "data": {"dataset": "python_reference", "options": {"length": 32}},
    "objective": {"name": "language_modelling"},
    "loop": {"max_steps": 20, "global_batch": 16},
    "schedule": {"name": "constant"},
}
"""Sections of a small language model."""


def small_settings(**sections: dict[str, Any]) -> TrainingSettings:
    """One process, two epochs of digits, no MLflow and no metrics; `sections` override that key by key."""
    base: dict[str, dict[str, Any]] = {
        "loop": {"epochs": 2},
        "scale": {"launcher": "plain", "workers": 1},
        "tracking": {"enabled": False},
        "metrics": {"exporter": "none"},
        "checkpoint": {"every_steps": 5},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section}
    return TrainingSettings.model_validate(base)


def training_started(**fields: Any) -> TrainingStarted:  # noqa: ANN401 - of the event
    """The event of a small run; `fields` override its own."""
    small: dict[str, Any] = {"world": 1, "start_step": 0, "total_steps": 10, "steps_per_epoch": 5, "parameters": 3}
    small |= {"train_samples": 20, "dataset_fingerprint": "f" * 64}
    return TrainingStarted(**(small | fields))


def done_step(number: int, **fields: Any) -> Step:  # noqa: ANN401 - of the event
    """The event of a step; `fields` override its own."""
    small: dict[str, Any] = {"step": number, "epoch": 1, "loss": 1.0, "metrics": {"accuracy": 0.5}}
    small |= {"gradient_norm": 1.0, "learning_rate": 0.1, "samples": 64, "seconds": 0.01}
    return Step(**(small | fields))


def run_alone(settings: TrainingSettings, folder: Path, *, attempt: int = 0) -> Outcome:
    """Run a world of one in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    return run_rank(RankTask(settings=settings, run_directory=folder, attempt=attempt), ALONE)


def supervised(settings: TrainingSettings, run: RunDirectory) -> Outcome:
    """Drive a run as the command does, but silently."""
    with run.driving():
        return Supervisor(settings, run, view=ProgressView(stream=io.StringIO(), is_terminal=False)).run()


def steps_of(folder: Path) -> list[Step]:
    """The steps in a run's log."""
    return select(read_all(folder), Step)


def losses_of(folder: Path) -> list[float]:
    """The losses of the steps in a run's log."""
    return [step.loss for step in steps_of(folder)]


def exported(folder: Path) -> dict[str, Tensor]:
    """The final weights of a run."""
    return load_file(folder / "model" / "model.safetensors")


def train(folder: Path, ranks: int, **sections: dict[str, Any]) -> str:
    """Train, or go on, on some ranks in processes of their own; returns the hash of the exported weights."""
    scale = {"launcher": "torchrun", "workers": ranks} if ranks > 1 else {}
    return run_world(
        small_settings(**{**sections, "scale": {**sections.get("scale", {}), **scale}}), folder
    ).weights_sha256


@contextmanager
def in_group(place: RankPlace) -> Iterator[None]:
    """The process group of a rank, which ends together with its peers: gloo may abort if one leaves while another communicates."""
    torch.set_num_threads(1)
    with process_group(place, gpu=False, timeout_seconds=120):
        yield
        if place.world > 1:
            dist.barrier()
