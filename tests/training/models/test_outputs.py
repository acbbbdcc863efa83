"""Which tensor of what a model returns the objective gets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.outputs import select_output

SPEC = SampleSpec(shape=(3,), outputs=2)

Container = Callable[[Tensor, Tensor], object]


class Returns(nn.Module):
    """Its scores in some container, after something else."""

    def __init__(self, container: Container) -> None:
        super().__init__()
        self.layer, self.container = nn.LazyLinear(2), container

    def forward(self, inputs: Tensor) -> object:
        return self.container(inputs, self.layer(inputs))


@pytest.mark.parametrize(
    ("container", "output"),
    [
        (lambda _, scores: scores, None),
        (lambda other, scores: {"hidden": other, "logits": scores}, None),
        (lambda _, scores: OrderedDict(loss=None, scores=scores), None),
        (lambda _, scores: (None, scores), None),
        (lambda other, scores: (other, scores), 1),
        (lambda other, scores: {"logits": other, "scores": scores}, "scores"),
    ],
    ids=["tensor", "logits", "the-only-tensor", "tuple", "index", "key"],
)
def test_one_tensor_is_left_of_what_a_model_returns(container: Container, output: str | int | None) -> None:
    model = Returns(container)
    before = torch.get_rng_state()
    select_output(model, ModelSettings(name="own:model", output=output), SPEC)
    assert model.training
    inputs = torch.ones(4, 3)
    assert torch.equal(model(inputs), model.layer(inputs))
    assert torch.equal(torch.get_rng_state(), before)
    returns_tensor = isinstance(container(inputs, inputs), Tensor)
    assert bool(model._forward_hooks) != returns_tensor, "an exported model would need the hook"


@pytest.mark.parametrize(
    ("container", "output", "said"),
    [
        (
            lambda other, scores: {"a": other, "b": scores},
            "logits",
            "a dict with a, b, and model.output=logits\n.*of a, b",
        ),
        (lambda other, scores: (other, scores), 2, "a tuple of 2, and model.output=2\n.*of 0, 1"),
        (lambda _, scores: scores, "logits", "a Tensor.*, and model.output=logits"),
        (lambda _, __: None, None, "a NoneType\n.*return a tensor"),
    ],
)
def test_outputs_without_the_tensor_are_refused_with_what_there_is(
    container: Container,
    output: str | int | None,
    said: str,
) -> None:
    with pytest.raises(SettingsError, match=said):
        select_output(Returns(container), ModelSettings(name="own:model", output=output), SPEC)
