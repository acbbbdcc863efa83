"""The metrics that a run reports are those of its exported weights, bit for bit, at every world size and for every model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_model
from torch.nn.functional import cross_entropy

from observability.runlog import Evaluated, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.config.schema import ModelSettings, TrainingSettings
from training.data.registry import load_dataset
from training.models.registry import MODELS, build_model

Metrics = tuple[float, float]

DEEP = {"resnet50", "resnet101"}
"""Made of what resnet18 is made of, too."""


def settings(model: str, workers: int, **sections: dict[str, Any]) -> TrainingSettings:
    """A few steps, with a validation and a test split of three batches each, the last one short."""
    sizes = {"samples": 160, "evaluation_samples": 1100}
    images = {"kind": "images", "channels": 1, "height": 8, "width": 8, **sizes}
    base: dict[str, dict[str, Any]] = {
        "model": {"name": model},
        "data": {"dataset": "synthetic_text", "options": sizes}
        if model == "rnn"
        else {"dataset": "synthetic", "options": images},
        "optimizer": {"name": "sgd", "momentum": 0.0, "learning_rate": 0.05},
        "loop": {"epochs": 1, "global_batch": 32},
        "checkpoint": {"every_steps": 1000},
        "scale": {"launcher": "torchrun", "workers": workers},
    }
    return small_settings(**{name: {**base.get(name, {}), **sections.get(name, {})} for name in base | sections})


def reported(folder: Path, split: str = "test") -> Metrics:
    """Loss and accuracy of the newest evaluation of a split in the run's log."""
    event = [event for event in select(read_all(folder), Evaluated) if event.split == split][-1]
    return event.loss, event.metrics["accuracy"]


def measured(folder: Path, run: TrainingSettings, split: str = "test") -> Metrics:
    """Loss and accuracy of the exported weights, evaluated in this process batch by batch."""
    torch.set_num_threads(1)  # as in every rank
    bundle = load_dataset(run.data)
    description = json.loads((folder / "model" / "model.json").read_text())
    module = build_model(ModelSettings.model_validate(description["model"]), bundle.spec).eval()
    load_model(module, folder / "model" / "model.safetensors")
    samples = getattr(bundle, split)
    loss = correct = 0.0
    with torch.no_grad():
        for start in range(0, len(samples), run.loop.evaluation_batch):
            inputs, labels = samples.read(np.arange(start, min(start + run.loop.evaluation_batch, len(samples))))
            logits = module(inputs)
            loss += float(cross_entropy(logits, labels, reduction="sum"))
            correct += int((logits.argmax(dim=1) == labels).sum())
    return loss / len(samples), correct / len(samples)


@pytest.mark.parametrize("model", [name for name in MODELS.names if name not in {"transformer", *DEEP}])
def test_two_ranks_report_the_metrics_of_the_exported_weights(tmp_path: Path, model: str) -> None:
    run = settings(model, 2)
    run_world(run, tmp_path / "run")
    for split in ("validation", "test"):
        assert reported(tmp_path / "run", split) == measured(tmp_path / "run", run, split)


def test_every_world_size_and_a_resumed_run_report_the_metrics_of_the_exported_weights(tmp_path: Path) -> None:
    """Of three batches, four ranks leave one rank without any. A run that resumes has nothing left to train."""
    run = settings("simple_cnn", 4, loop={"accumulation": 2})
    for _ in range(2):
        run_world(run, tmp_path / "run")
        assert reported(tmp_path / "run") == measured(tmp_path / "run", run)
    run_alone(settings("simple_cnn", 1), tmp_path / "run")
    first, *later = [event for event in select(read_all(tmp_path / "run"), Evaluated) if event.split == "test"]
    assert [(event.step, event.loss, event.metrics["accuracy"]) for event in later] == [
        (first.step, first.loss, first.metrics["accuracy"])
    ] * 2
