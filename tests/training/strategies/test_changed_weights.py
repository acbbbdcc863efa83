"""A forward pass that changes weights is refused where the ranks would lose the change, or not agree on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

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


def refuse(change: Change, *, is_divided: bool) -> None:
    module = Changing(change)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        refuse_changed_weights(module, torch.randn(2, 4), strategy="some", model="own:model", is_divided=is_divided)
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
