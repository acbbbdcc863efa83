"""Tests of this project; they need no cluster: `make test CODE=…` in the checkout of the platform."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from my_project.data import tumours
from my_project.model import Net
from my_project.objective import CostOfErrors
from training.config.load import load_settings
from training.config.schema import DataSettings
from training.data.types import Split

BUNDLE = tumours(DataSettings())


def samples(split: Split, count: int) -> tuple[Tensor, Tensor]:
    """The first samples of a split."""
    return split.read(np.arange(count))


def test_the_settings_are_valid() -> None:
    """A wrong key or value, or a name that does not exist, is an error."""
    load_settings([Path(__file__).with_name("train.yaml")])


def test_the_model_returns_one_logit_for_each_sample() -> None:
    """The objective needs the shape of the targets."""
    inputs, targets = samples(BUNDLE.train, 8)
    assert inputs.shape == (8, *BUNDLE.spec.shape)
    assert Net(BUNDLE.spec)(inputs).shape == targets.shape == (8, BUNDLE.spec.outputs)


def test_no_sample_is_in_two_splits() -> None:
    """Otherwise the test split would measure what the model remembers."""
    rows = [
        tuple(row.tolist())
        for one in (BUNDLE.train, BUNDLE.validation, BUNDLE.test)
        for row in samples(one, len(one))[0]
    ]
    assert len(set(rows)) == len(rows) == 569


def test_the_loss_falls_in_twenty_steps() -> None:
    """The model can learn, and the objective has a gradient."""
    torch.manual_seed(0)
    model, objective = Net(BUNDLE.spec), CostOfErrors(BUNDLE.spec)
    inputs, targets = samples(BUNDLE.train, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        loss = objective.measure(model(inputs), targets)[0] / len(targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_the_objective_is_its_formula() -> None:
    """Two malignant tumours, of which one is missed, and a false alarm; -log(1 - p) is log(1 + e^x)."""
    outputs, targets = torch.tensor([[2.0], [-1.0], [0.5]]), torch.tensor([[1.0], [1.0], [0.0]])
    objective = CostOfErrors(BUNDLE.spec, missed_cost=3.0)
    reported = objective.summarize([float(value) for value in objective.measure(outputs, targets)], weight=3)
    losses = [3 * np.log1p(np.exp(-2.0)), 3 * np.log1p(np.exp(1.0)), np.log1p(np.exp(0.5))]
    assert reported == pytest.approx({"loss": sum(losses) / 3, "accuracy": 1 / 3, "missed": 1 / 2})
