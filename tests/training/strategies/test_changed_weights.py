"""A forward pass that changes weights is refused where the ranks would lose the change, or not agree on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.runs import train
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.strategies.shardable import refuse_changed_weights

Change = Callable[[Tensor, Tensor], object]


class Changing(nn.Module):
    """A linear layer whose weight `change` may change in a forward pass."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(4, 4), change

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self.change(self.layer.weight, inputs)
        outputs: Tensor = self.layer(inputs)
        return outputs


def clamp(weight: Tensor, _: Tensor) -> None:
    weight.clamp_(-100, 100)  # to what it is


def assign(weight: Tensor, _: Tensor) -> None:
    weight.data = torch.renorm(weight.data, 2, 0, maxnorm=100)


def follow(weight: Tensor, inputs: Tensor) -> None:
    weight.mul_(0.9).add_(inputs.mean(0), alpha=0.1)


def look(weight: Tensor, _: Tensor) -> None:
    weight.square().sum()


class Following(nn.Module):
    """A layer with a frozen weight that follows the mean of its inputs."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        features = math.prod(spec.shape)
        self.layer = nn.Linear(features, spec.outputs)
        self.centre = nn.Parameter(torch.zeros(features), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        features = inputs.flatten(1)
        outputs: Tensor = self.layer(features - self.centre)
        if self.training:
            follow(self.centre.data, features)
        return outputs


def following(spec: SampleSpec) -> nn.Module:
    return Following(spec)


def refuse(change: Change, *, is_divided: bool, world: int = 2) -> None:
    module = Changing(change)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        refuse_changed_weights(
            module, torch.randn(2, 4), strategy="some", model="own:model", is_divided=is_divided, world=world
        )
    finally:
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(("change", "is_divided"), [(clamp, True), (assign, True), (follow, True), (follow, False)])
def test_a_change_that_ranks_lose_or_differ_in_is_refused(*, change: Change, is_divided: bool) -> None:
    with pytest.raises(
        SettingsError, match=r"strategy\.name=some: model\.name=own:model changes its weight layer\.weight"
    ):
        refuse(change, is_divided=is_divided)


@pytest.mark.parametrize(("change", "is_divided"), [(clamp, False), (assign, False), (look, True), (look, False)])
def test_the_same_change_on_every_rank_is_trained(*, change: Change, is_divided: bool) -> None:
    refuse(change, is_divided=is_divided)


def test_a_change_that_a_skipped_step_would_keep_is_refused(tmp_path: Path) -> None:
    """A weight that follows the samples, as one that is frozen does in DINO's centre or a codebook."""
    model = {"name": f"{__name__}:following"}
    with pytest.raises(SettingsError, match=r"loop\.nonfinite=skip .* changes its weight centre"):
        train(tmp_path / "skip", 1, model=model, loop={"nonfinite": "skip", "max_steps": 2})
    train(tmp_path / "stop", 1, model=model, loop={"nonfinite": "stop", "max_steps": 2})
    refuse(clamp, is_divided=False, world=1)


def test_an_embedding_that_limits_the_rows_of_its_batch_is_refused() -> None:
    module, tokens = nn.Embedding(9, 4, max_norm=0.5), torch.tensor([[1, 2, 3], [4, 5, 6]])
    with pytest.raises(SettingsError, match="changes its weight weight in forward"):
        refuse_changed_weights(module, tokens, strategy="ddp", model="own", is_divided=False, world=2)
