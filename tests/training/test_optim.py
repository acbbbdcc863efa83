"""Parameter groups, the learning rates of each schedule against torch's own schedulers, and the linear scaling rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, OneCycleLR, SequentialLR, StepLR

from training.config.schema import OptimizerSettings, ScheduleSettings
from training.optim import build_optimizer, learning_rate_at, parameter_groups, peak_learning_rate, set_learning_rate

PEAK = 0.4


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def rates(settings: ScheduleSettings, *, total_steps: int, steps_per_epoch: int = 7) -> list[float]:
    return [
        learning_rate_at(step, settings=settings, peak=PEAK, total_steps=total_steps, steps_per_epoch=steps_per_epoch)
        for step in range(total_steps)
    ]


def torch_rates(make: Callable[[Optimizer], LRScheduler], *, total_steps: int) -> list[float]:
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=PEAK)
    scheduler = make(optimizer)
    taken = []
    for _ in range(total_steps):
        taken.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return taken


def behind_warmup(optimizer: Optimizer, warmup: int, scheduler: LRScheduler) -> SequentialLR:
    rise = LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    return SequentialLR(optimizer, [rise, scheduler], milestones=[warmup])


def test_matrices_and_convolutions_decay_but_biases_and_norms_do_not_and_frozen_ones_are_left_out() -> None:
    def decays(model: nn.Module) -> dict[str, float]:
        named = {id(parameter): name for name, parameter in model.named_parameters()}
        optimizer = build_optimizer(model, OptimizerSettings(weight_decay=0.3), learning_rate=0.1)
        return {named[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}

    model = network()
    rest = {"1.weight": 0.0, "1.bias": 0.0, "4.weight": 0.3, "4.bias": 0.0}
    assert decays(model) == {"0.weight": 0.3, "0.bias": 0.0, **rest}
    model[0].requires_grad_(requires_grad=False)
    assert decays(model) == rest
    assert len(parameter_groups(nn.Linear(2, 2, bias=False), weight_decay=0.1)) == 1, "an empty group"


def test_fused_updates_equal_the_plain_ones() -> None:
    sgd: dict[str, Any] = {"momentum": 0.8, "nesterov": True}
    betas: dict[str, Any] = {"betas": (0.8, 0.9)}
    for name, plain, options in (("sgd", SGD, sgd), ("adam", Adam, betas), ("adamw", AdamW, betas)):
        torch.manual_seed(0)
        ours, theirs = network(), network()
        theirs.load_state_dict(ours.state_dict())
        settings = OptimizerSettings.model_validate({"name": name, "weight_decay": 0.1, **options})
        groups = parameter_groups(theirs, weight_decay=0.1)
        optimizers = [
            build_optimizer(ours, settings, learning_rate=0.1),
            plain(groups, lr=0.1, foreach=False, **options),
        ]
        for _ in range(3):
            gradients = [torch.randn_like(parameter) for parameter in ours.parameters()]
            for model, optimizer in zip((ours, theirs), optimizers, strict=True):
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.grad = gradient.clone()
                optimizer.step()
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left, right)


def test_the_peak_scales_with_the_global_batch_only_where_a_base_batch_is_set() -> None:
    assert peak_learning_rate(OptimizerSettings(learning_rate=0.1), 8192) == 0.1
    assert peak_learning_rate(OptimizerSettings(learning_rate=0.1, base_batch=256), 8192) == pytest.approx(3.2)
    assert peak_learning_rate(OptimizerSettings(learning_rate=0.1, base_batch=256), 64) == pytest.approx(0.025)


def test_every_group_has_the_learning_rate_and_gets_a_new_one() -> None:
    optimizer = build_optimizer(network(), OptimizerSettings(), learning_rate=0.2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 0.2]
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_warmup_rises_linearly_and_reaches_the_peak_one_step_after_its_last() -> None:
    settings = ScheduleSettings(name="constant", warmup_steps=3)
    assert rates(settings, total_steps=5) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


@given(total=st.integers(2, 120), warmup=st.integers(0, 30), final=st.floats(0, 1))
def test_cosine_with_warmup_equals_linear_then_cosine_annealing(total: int, warmup: int, final: float) -> None:
    warmup = min(warmup, total - 1)
    expected = torch_rates(
        lambda optimizer: behind_warmup(
            optimizer, warmup, CosineAnnealingLR(optimizer, T_max=total - warmup, eta_min=PEAK * final)
        ),
        total_steps=total,
    )
    settings = ScheduleSettings(name="cosine", warmup_steps=warmup, final_fraction=final)
    assert rates(settings, total_steps=total) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(total=st.integers(1, 120), step_epochs=st.integers(1, 4), gamma=st.floats(0.01, 1))
def test_step_equals_step_lr(total: int, step_epochs: int, gamma: float) -> None:
    expected = torch_rates(
        lambda optimizer: StepLR(optimizer, step_size=7 * step_epochs, gamma=gamma), total_steps=total
    )
    settings = ScheduleSettings(name="step", step_epochs=step_epochs, gamma=gamma)
    assert rates(settings, total_steps=total) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(total=st.integers(5, 120), rise=st.floats(0.25, 0.95), final=st.floats(1e-6, 1))
def test_one_cycle_equals_one_cycle_lr(total: int, rise: float, final: float) -> None:
    expected = torch_rates(
        lambda optimizer: OneCycleLR(
            optimizer,
            max_lr=PEAK,
            total_steps=total + 1,  # torch's scheduler is stepped once more than the rates that are compared
            pct_start=rise,
            final_div_factor=1 / (25 * final),
            cycle_momentum=False,
        ),
        total_steps=total,
    )
    settings = ScheduleSettings(name="one_cycle", rise_fraction=rise, final_fraction=final)
    assert rates(settings, total_steps=total + 1)[:total] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_rate_of_a_run_shorter_than_its_warmup_only_rises() -> None:
    taken = rates(ScheduleSettings(name="cosine", warmup_steps=100), total_steps=10)
    assert all(math.isclose(rate, PEAK * (step + 1) / 101) for step, rate in enumerate(taken))
