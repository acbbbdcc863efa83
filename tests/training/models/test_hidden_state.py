"""A model or an objective that computes with what no checkpoint has is refused, and no other."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from observability.objective_metrics import Metric
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.hidden_state import refuse_counting_objective, refuse_hidden_state
from training.objectives.objective import Objective

SPEC = SampleSpec(shape=(3,), outputs=2)

Forward = Callable[["Keeps", Tensor], Tensor]


class Keeps(nn.Module):
    """A layer behind `forward`, which may use what a user could keep in a model."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer, self.before = nn.Linear(3, 2), forward
        self.calls = 0
        self.mean = torch.zeros(3)
        self.table = np.zeros(3)
        self.directions = torch.randn(3)
        self.generator, self.numpy = torch.Generator(), np.random.default_rng(0)
        self.seen: Tensor | None = None
        self.made: torch.Generator | None = None
        self.register_buffer("saved", torch.zeros(3))
        self.register_buffer("unsaved", torch.zeros(3), persistent=False)
        self.saved: Tensor
        self.unsaved: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.before(self, inputs))
        return outputs


def counts(self: Keeps, inputs: Tensor) -> Tensor:
    self.calls += self.training
    return inputs * min(1.0, self.calls / 40)


def waits(self: Keeps, inputs: Tensor) -> Tensor:
    self.calls += self.training
    return inputs if self.calls > 1000 else inputs / 2


def counts_for_a_log(self: Keeps, inputs: Tensor) -> Tensor:
    self.calls += 1
    return inputs


def averages(self: Keeps, inputs: Tensor) -> Tensor:
    if self.training:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
    return inputs - self.mean


def averages_in_numpy(self: Keeps, inputs: Tensor) -> Tensor:
    if self.training:
        self.table = 0.9 * self.table + 0.1 * inputs.mean(0).numpy()
    return inputs - torch.from_numpy(self.table).float()


def averages_unsaved(self: Keeps, inputs: Tensor) -> Tensor:
    if self.training:
        self.unsaved.mul_(0.9).add_(inputs.mean(0), alpha=0.1)
    return inputs - self.unsaved


def queues(self: Keeps, inputs: Tensor) -> Tensor:
    """As `averages_unsaved`, in training alone."""
    return averages_unsaved(self, inputs) if self.training else inputs


def makes_a_generator(self: Keeps, inputs: Tensor) -> Tensor:
    self.made = self.made or torch.Generator().manual_seed(3)
    return inputs + torch.rand(3, generator=self.made)


def has_drawn(self: Keeps, inputs: Tensor) -> Tensor:
    return inputs * self.directions


def averages_saved(self: Keeps, inputs: Tensor) -> Tensor:
    if self.training:
        self.saved.mul_(0.9).add_(inputs.mean(0), alpha=0.1)
    return inputs - self.saved


def draws(self: Keeps, inputs: Tensor) -> Tensor:
    noise = torch.rand(3, generator=self.generator) + torch.rand(3) + random.random()
    return inputs + noise + torch.from_numpy(self.numpy.random(3) + np.random.rand(3)).float()


def remembers(self: Keeps, inputs: Tensor) -> Tensor:
    """What a training pass has seen, for people to look at, and a cache that is always the same."""
    self.seen = inputs
    self.table = np.arange(3.0)
    return inputs + torch.from_numpy(self.table).float()


def draws_of_the_system(self: Keeps, inputs: Tensor) -> Tensor:
    return inputs + os.urandom(1)[0]


def look_at(model: Keeps) -> None:
    forward = model.before
    refuse_hidden_state(model, lambda: Keeps(forward), model="own:model", spec=SPEC)


@pytest.mark.parametrize(
    ("forward", "attribute"),
    [
        (counts, "calls"),
        (waits, "calls"),
        (averages, "mean"),
        (averages_in_numpy, "table"),
        (averages_unsaved, "unsaved"),
        (has_drawn, "directions"),
        (makes_a_generator, "made"),
    ],
)
def test_what_no_checkpoint_has_is_refused_by_name(forward: Forward, attribute: str) -> None:
    with pytest.raises(SettingsError, match=f"model.name=own:model computes with .*{attribute}"):
        look_at(Keeps(forward))


@pytest.mark.parametrize("forward", [averages_saved, queues, draws, remembers, counts_for_a_log, draws_of_the_system])
def test_other_models_pass_and_the_global_generators_stay(forward: Forward) -> None:
    model = Keeps(forward)
    before = torch.get_rng_state(), random.getstate()
    np.random.seed(1)
    look_at(model)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.rand() == np.random.RandomState(1).rand()


class Hooked(nn.Linear):
    """A layer whose weight is frozen for some steps, or always in part."""

    def __init__(self, *, steps: int) -> None:
        super().__init__(3, 2)
        self.calls, self.steps = 0, steps
        self.weight.register_hook(self.changed)  # type: ignore[no-untyped-call]

    def changed(self, gradient: Tensor) -> Tensor:
        self.calls += 1
        return gradient * (self.calls > self.steps) if self.steps else gradient * torch.eye(2, 3)


@pytest.mark.parametrize("steps", [2, 1000])
def test_a_count_of_a_hook_is_refused(steps: int) -> None:
    with pytest.raises(SettingsError, match="computes with calls"):
        refuse_hidden_state(Hooked(steps=steps), lambda: Hooked(steps=steps), model="own", spec=SPEC)
    refuse_hidden_state(Hooked(steps=0), lambda: Hooked(steps=0), model="own", spec=SPEC)


def test_a_factory_that_builds_other_parameters_each_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="does not fit a new model"):
        refuse_hidden_state(nn.Linear(3, 2), lambda: nn.Linear(3, 4), model="own:model", spec=SPEC)


class Annealed(Objective):
    """A loss whose factor grows with each call, or is drawn."""

    sums: ClassVar = ("loss",)
    metrics: ClassVar = (Metric(name="loss"),)
    ranked_by: ClassVar = "loss"

    def __init__(self, *, is_drawn: bool) -> None:
        self.calls, self.is_drawn, self.generator = 0, is_drawn, random.Random()

    def measure(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        self.calls += 1
        factor = self.generator.random() if self.is_drawn else self.calls / 40
        return (factor * (outputs.sum(1) - targets).square().sum(),)


def test_an_objective_that_counts_its_calls_is_refused_and_one_that_draws_is_not() -> None:
    inputs, targets = torch.randn(2, 3), torch.zeros(2)
    refuse_counting_objective(Annealed(is_drawn=True), nn.Linear(3, 2), inputs, targets)
    counting = Annealed(is_drawn=False)
    with pytest.raises(SettingsError, match="objective Annealed: measure returns other sums"):
        refuse_counting_objective(counting, nn.Linear(3, 2), inputs, targets)
    assert counting.calls == 0
