"""Every objective trains, and reports what a plain evaluation of the exported weights finds, at any world size."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_model
from sklearn import metrics as sklearn_metrics
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, huber_loss

from observability.runlog import Evaluated, Step, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.objectives.recipes import RECIPES, recipe
from training.config.schema import TrainingSettings
from training.data.registry import load_dataset
from training.models.registry import build_model

Values = dict[str, float]


def predictions(folder: Path, run: TrainingSettings, split: str = "test") -> tuple[Tensor, Tensor]:
    """Outputs of the exported weights for a split, and its targets."""
    torch.set_num_threads(1)
    bundle = load_dataset(run.data)
    assert json.loads((folder / "model" / "model.json").read_text())["samples"]["outputs"] == bundle.spec.outputs
    module = build_model(run.model, bundle.spec).eval()
    load_model(module, folder / "model" / "model.safetensors")
    samples = getattr(bundle, split)
    inputs, targets = samples.read(np.arange(len(samples)))
    with torch.no_grad():
        return module(inputs).double(), targets


def of_classes(outputs: Tensor, targets: Tensor) -> Values:
    accuracy = sklearn_metrics.accuracy_score(targets, outputs.argmax(1))
    return {"loss": float(cross_entropy(outputs, targets)), "accuracy": accuracy}


def of_weighted_classes(outputs: Tensor, targets: Tensor) -> Values:
    weights = torch.arange(1, 11, dtype=torch.float64)
    return of_classes(outputs, targets) | {"loss": float(cross_entropy(outputs, targets, weight=weights))}


def of_tokens(outputs: Tensor, targets: Tensor) -> Values:
    loss = float(cross_entropy(outputs.flatten(0, 1), targets.flatten()))
    counts = targets != -100
    accuracy = float((outputs.argmax(-1) == targets)[counts].double().mean())
    return {"loss": loss, "perplexity": math.exp(loss), "accuracy": accuracy}


def of_values(outputs: Tensor, targets: Tensor) -> Values:
    return {
        "loss": float(huber_loss(outputs, targets.double())),
        "mean_absolute_error": sklearn_metrics.mean_absolute_error(targets, outputs),
        "root_mean_squared_error": sklearn_metrics.root_mean_squared_error(targets, outputs),
    }


def of_labels(outputs: Tensor, targets: Tensor) -> Values:
    predicted = outputs.sigmoid() >= 0.4
    precision, recall, f1, _ = sklearn_metrics.precision_recall_fscore_support(targets, predicted, average="micro")
    weights = torch.tensor([1.0, 2.0] * 3)
    loss = float(binary_cross_entropy_with_logits(outputs, targets.double(), pos_weight=weights))
    return {"loss": loss, "f1": f1, "precision": precision, "recall": recall}


def of_quantile(outputs: Tensor, targets: Tensor) -> Values:
    loss = sklearn_metrics.mean_pinball_loss(targets, outputs, alpha=0.8)
    return {"loss": loss, "below": float((targets < outputs).double().mean())}


PLAIN: dict[str, Callable[[Tensor, Tensor], Values]] = {
    "image": of_classes,
    "weighted image": of_weighted_classes,
    "text": of_tokens,
    "padded text": of_tokens,
    "regression": of_values,
    "multi-label": of_labels,
    "own": of_quantile,
}


def reported(folder: Path, split: str = "test") -> Values:
    event = [event for event in select(read_all(folder), Evaluated) if event.split == split][-1]
    return {"loss": event.loss, **event.metrics}


@pytest.mark.extended
@pytest.mark.parametrize("name", RECIPES)
def test_the_reported_metrics_are_those_of_the_exported_weights(tmp_path: Path, name: str) -> None:
    run = recipe(name, workers=2)
    run_world(run, tmp_path / "run")
    for split in ("validation", "test"):
        expected = PLAIN[name](*predictions(tmp_path / "run", run, split))
        assert reported(tmp_path / "run", split) == pytest.approx(expected, rel=1e-5), split
    losses = [step.loss for step in select(read_all(tmp_path / "run"), Step)]
    assert np.mean(losses[-8:]) < (1 if name == "padded text" else 0.97) * losses[0]


def test_the_gradient_is_that_of_the_mean_over_all_tokens(tmp_path: Path) -> None:
    """Ranks and micro-batches have different numbers of tokens, so the mean of their means is another number."""
    optimizer = {"name": "sgd", "momentum": 0.0, "learning_rate": 0.1}
    losses: list[list[float]] = []
    for workers, accumulation in ((1, 1), (2, 1), (2, 4)):
        folder = tmp_path / f"{workers}-{accumulation}"
        loop = {"epochs": 2, "accumulation": accumulation}
        run_world(recipe("padded text", workers=workers, optimizer=optimizer, loop=loop), folder)
        losses.append([step.loss for step in select(read_all(folder), Step)])
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-5)
    _, targets = load_dataset(recipe("padded text").data).train.read(np.arange(250))
    units = sum(step.units for step in select(read_all(tmp_path / "2-4"), Step))
    assert units == 2 * int((targets != -100).sum()), "tokens are counted, and not samples"
