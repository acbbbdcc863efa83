"""Hooks that change gradients train as in one process, or are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.runs import exported, train
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.strategies.gradient_hooks import Hook, refuse_nonlinear_gradients, refuse_nonlinear_hooks


class Masked(nn.Module):
    """Half of each gradient of a weight is left out; the gradients are counted."""

    mask: Tensor

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, spec.outputs))
        self.register_buffer("mask", torch.arange(64) % 2)
        self.calls = 0
        self.inner.get_parameter("0.weight").register_hook(self.changed)  # type: ignore[no-untyped-call]

    def changed(self, gradient: Tensor) -> Tensor:
        self.calls += 1
        return gradient * self.mask

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs.flatten(1))
        return outputs


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_hooks_of_weights_act_as_in_one_process(tmp_path: Path, strategy: str) -> None:
    recipe: dict[str, dict[str, Any]] = {
        "model": {"name": f"{__name__}:Masked"},
        "loop": {"max_steps": 4},
        "schedule": {"name": "constant"},
    }
    train(tmp_path / "one", 1, **recipe)
    train(tmp_path / "two", 2, **recipe, strategy={"name": strategy})
    expected = exported(tmp_path / "one")
    for name, value in exported(tmp_path / "two").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)


def recorded(gradient: Tensor) -> None:
    del gradient


@pytest.mark.parametrize(
    ("hook", "is_linear"),
    [
        (recorded, True),
        (lambda gradient: gradient * torch.arange(6), True),
        (lambda gradient: gradient - gradient.mean(), True),
        (lambda gradient: gradient.clamp(-1e-3, 1e-3), False),
        (lambda gradient: gradient.clamp(-100, 100), False),
        (lambda gradient: gradient.relu(), False),
        (lambda gradient: gradient / gradient.norm(), False),
        (lambda gradient: gradient * min(1.0, 1e3 / float(gradient.norm())), False),
        (lambda gradient: gradient.flip(1) / 3, True),
        (lambda gradient: torch.where(gradient.abs() < 1e-4, 0.0, gradient), False),
        (lambda gradient: gradient + torch.randn_like(gradient), False),
    ],
)
def test_hooks_are_refused_unless_they_are_linear(hook: Hook, is_linear: bool) -> None:  # noqa: FBT001
    module = nn.Sequential(nn.Linear(6, 4))
    module.get_parameter("0.weight").register_hook(hook)  # type: ignore[no-untyped-call]
    if is_linear:
        refuse_nonlinear_hooks(module, model="own", has_parts=False)
        return
    with pytest.raises(SettingsError, match=r"0\.weight of model\.name=own"):
        refuse_nonlinear_hooks(module, model="own", has_parts=False)


def test_a_hook_is_tried_without_a_trace() -> None:
    module = Masked(SampleSpec(shape=(64,), outputs=2))
    state = torch.get_rng_state()
    refuse_nonlinear_hooks(module, model="own", has_parts=True)
    assert module.calls == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_hooks_after_accumulation_and_of_weights_that_become_parts_are_refused() -> None:
    module = nn.Linear(2, 2)
    weight = module.weight
    handle = weight.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
    refuse_nonlinear_hooks(module, model="own", has_parts=False)
    with pytest.raises(SettingsError, match="weight of model"):
        refuse_nonlinear_hooks(module, model="own", has_parts=True)
    handle.remove()
    module.bias.register_post_accumulate_grad_hook(recorded)  # type: ignore[no-untyped-call]
    with pytest.raises(SettingsError, match="bias of model"):
        refuse_nonlinear_hooks(module, model="own", has_parts=False)


@pytest.mark.parametrize(
    ("change", "is_proportional"), [(lambda one: one * 3, True), (lambda one: one.clamp(-0.5, 0.5), False)]
)
def test_gradients_have_to_be_proportional_to_the_loss(change: Hook, is_proportional: bool) -> None:  # noqa: FBT001
    def changed(module: nn.Module, inputs: tuple[Tensor], outputs: object) -> tuple[Tensor | None]:
        del module, outputs
        return (change(inputs[0]),)

    module = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.2), nn.Linear(4, 2))
    module[2].register_full_backward_hook(changed)
    if is_proportional:
        refuse_nonlinear_gradients(module, torch.randn(2, 6), model="own")
        return
    with pytest.raises(SettingsError, match=r"0\.weight of model\.name=own"):
        refuse_nonlinear_gradients(module, torch.randn(2, 6), model="own")


class OneMore(torch.autograd.Function):
    """Adds one to the gradient, as a loss that a model adds by itself does."""

    @staticmethod
    def forward(ctx: object, features: Tensor) -> Tensor:
        del ctx
        return features.view_as(features)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return gradient + 1


class Adding(nn.Module):
    """A network that adds to its gradients."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(OneMore.apply(self.first(inputs.flatten(1))))
        return outputs


def test_gradients_that_a_model_adds_are_refused_under_accumulation(tmp_path: Path) -> None:
    model = {"name": f"{__name__}:Adding"}
    with pytest.raises(SettingsError, match=r"first\.weight of .*:Adding is not proportional"):
        train(tmp_path / "accumulated", 1, model=model, loop={"max_steps": 2, "accumulation": 2})
    train(tmp_path / "at once", 1, model=model, loop={"max_steps": 2})
