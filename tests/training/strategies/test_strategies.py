"""The strategies: both train the same weights, and both save the state of the bare model."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from tests.training.launch.ranks import on_ranks
from tests.training.runs import exported, in_group, losses_of, train
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.rank.agreement import check_agreement
from training.strategies.data_parallel import DataParallel
from training.strategies.single_process import SingleProcess

CPU = torch.device("cpu")
INPUTS = torch.arange(24.0).reshape(4, 6) / 24


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 2)


def _averaged_gradient(place: RankPlace, *, held_back: bool) -> tuple[list[float], float, int]:
    """The gradient of this rank's loss, its norm, and the ranks it is averaged over."""
    with in_group(place):
        strategy = DataParallel(network(), lambda module: SGD(module.parameters(), lr=0.1), device=CPU)
        with strategy.accumulating() if held_back else nullcontext():
            strategy.model(INPUTS[place.rank :: place.world]).square().sum().backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in strategy.module.parameters() if p.grad is not None])
        return gradient.tolist(), float(strategy.gradient_norm()), strategy.averaged_ranks


def test_averaged_gradients_times_the_ranks_are_those_of_one_process() -> None:
    alone = SingleProcess(network(), lambda module: SGD(module.parameters(), lr=0.1, momentum=0.9))
    alone.model(INPUTS).square().sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in alone.module.parameters() if p.grad is not None])
    for gradient, norm, ranks in on_ranks(2, _averaged_gradient, held_back=False):
        torch.testing.assert_close(ranks * torch.tensor(gradient), expected * alone.averaged_ranks)
        assert ranks * norm == pytest.approx(float(alone.gradient_norm()), rel=1e-5)


def test_gradients_within_accumulating_stay_local_to_the_rank() -> None:
    (first, *_), (second, *_) = on_ranks(2, _averaged_gradient, held_back=True)
    assert first != second


def _buffers(place: RankPlace) -> list[list[list[float]]]:
    """This rank's buffers after a training step on its own inputs, and after they were synchronized."""
    with in_group(place):
        module = nn.BatchNorm1d(6)
        module.register_buffer("transposed", torch.full((6, 2), float(place.rank)).t())
        strategy = DataParallel(module, lambda module: SGD(module.parameters(), lr=0.1), device=CPU)
        strategy.model(INPUTS[2 * place.rank : 2 * place.rank + 2]).sum().backward()
        before = [buffer.reshape(-1).tolist() for buffer in module.buffers()]
        strategy.synchronize_buffers()
        return [before, [buffer.reshape(-1).tolist() for buffer in module.buffers()]]


def test_synchronized_buffers_are_rank_0_s() -> None:
    (first, first_after), (second, second_after) = on_ranks(2, _buffers)
    assert first != second
    assert first_after == second_after == first


def test_a_frozen_parameter_does_not_contribute_to_the_norm() -> None:
    module = network()
    module.get_parameter("bias").requires_grad_(False)
    strategy = SingleProcess(module, lambda module: SGD(module.parameters(), lr=0.1))
    strategy.model(INPUTS).sum().backward()
    gradient = module.get_parameter("weight").grad
    assert gradient is not None
    assert float(strategy.gradient_norm()) == float(gradient.norm())


def test_a_run_of_three_ranks_and_two_buckets_resumes_bit_for_bit(tmp_path: Path) -> None:
    """DDP's first bucket is 1 MiB and the model 1.6 MB. The sum of two numbers is rounded in one way, that of three is not."""
    model = {"name": "mlp", "options": {"hidden": [600, 600]}}
    recipe: dict[str, dict[str, Any]] = {"model": model, "schedule": {"name": "constant"}}
    whole = train(tmp_path / "whole", 3, **recipe, loop={"max_steps": 9, "global_batch": 48})
    train(tmp_path / "parted", 3, **recipe, loop={"max_steps": 6, "global_batch": 48})
    assert train(tmp_path / "parted", 3, **recipe, loop={"max_steps": 9, "global_batch": 48}) == whole


class Branching(nn.Module):
    """Some steps, or none, use `branch`."""

    def __init__(self, spec: SampleSpec, *, every: int) -> None:
        super().__init__()
        self.every = every
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.calls: Tensor
        self.trunk, self.branch = nn.Linear(64, spec.outputs), nn.Linear(64, spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        features = inputs.flatten(1)
        self.calls += self.training
        outputs: Tensor = self.trunk(features)
        return outputs + self.branch(features) if self.every and int(self.calls) % self.every else outputs


@pytest.mark.parametrize(
    ("every", "steps", "accumulation"),
    [(0, 5, 1), (3, 5, 1), (3, 3, 1), (2, 1, 2)],
    ids=["never", "not-in-every-step", "not-in-the-last-step", "not-in-the-last-micro-batch"],
)
def test_weights_that_a_step_does_not_use_are_refused_by_name_or_allowed_by_a_setting(
    tmp_path: Path, every: int, steps: int, accumulation: int
) -> None:
    recipe: dict[str, Any] = {
        "model": {"name": f"{__name__}:Branching", "options": {"every": every}},
        "loop": {"max_steps": steps, "accumulation": accumulation},
        "schedule": {"name": "constant"},
    }
    with pytest.raises(SettingsError, match=r"has not used branch\.weight, branch\.bias of the model") as refused:
        train(tmp_path / "refused", 2, **recipe)
    assert "communication.unused_parameters=true" in refused.value.remedy
    train(tmp_path / "allowed", 2, **recipe, communication={"unused_parameters": True})
    if accumulation > 1:  # the same micro-batches
        recipe["loop"]["accumulation"] = 2 * accumulation
    train(tmp_path / "one", 1, **recipe)
    assert losses_of(tmp_path / "allowed") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-4)
    allowed = exported(tmp_path / "allowed")
    for name, value in exported(tmp_path / "one").items():
        if name != "calls":  # one process has more of them in a step
            torch.testing.assert_close(allowed[name], value, rtol=1e-3, atol=2e-4)


UNUSED: dict[str, Any] = {
    "model": {"name": f"{__name__}:Branching", "options": {"every": 0}},
    "loop": {"max_steps": 3, "global_batch": 64},
    "optimizer": {"name": "adamw", "weight_decay": 0.1},
    "schedule": {"name": "constant"},
}


@pytest.mark.parametrize(
    ("ranks", "sections"),
    [
        (1, {"loop": {"logical_shards": 4}}),
        (2, {"loop": {"logical_shards": 4}}),
        (2, {"strategy": {"name": "fsdp2"}}),
    ],
    ids=["shards", "shards-of-two", "fsdp2"],
)
def test_weights_without_a_use_do_not_decay(tmp_path: Path, ranks: int, sections: dict[str, Any]) -> None:
    train(tmp_path / "one", 1, **UNUSED)
    train(tmp_path / "other", ranks, **{**UNUSED, **sections, "loop": {**UNUSED["loop"], **sections.get("loop", {})}})
    expected, found = exported(tmp_path / "one"), exported(tmp_path / "other")
    assert torch.equal(found["branch.weight"], expected["branch.weight"])
    torch.testing.assert_close(found["trunk.weight"], expected["trunk.weight"], rtol=1e-3, atol=2e-4)


def _differing(place: RankPlace, *, difference: str, has_broadcast: bool) -> str:
    """What is said of models that differ between the ranks."""
    with in_group(place):
        torch.manual_seed(place.rank if difference == "values" else 0)
        names = ["first", "second"]
        if difference == "order" and place.rank:
            names.reverse()
        model = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})
        if difference == "frozen" and place.rank:
            model["first"].requires_grad_(requires_grad=False)
        if difference == "more" and place.rank:
            model["third"] = nn.Linear(2, 2)
        try:
            check_agreement(model, model="own", device=CPU, has_broadcast=has_broadcast)
        except SettingsError as error:
            return str(error.args[0])
        return ""


@pytest.mark.parametrize(
    ("difference", "has_broadcast", "said"),
    [
        ("none", False, ""),
        ("order", True, "second.weight (2, 2) torch.float32 instead of first.weight (2, 2) torch.float32"),
        ("more", True, "third.weight (2, 2) torch.float32 instead of nothing more"),
        ("frozen", True, "first.weight (2, 2) torch.float32 (frozen) instead of first.weight (2, 2) torch.float32"),
        ("values", True, ""),
        ("values", False, "the values of first.weight differ"),
    ],
)
def test_ranks_that_have_built_different_models_are_refused_alike(
    *, difference: str, has_broadcast: bool, said: str
) -> None:
    first, second = on_ranks(2, _differing, difference=difference, has_broadcast=has_broadcast)
    assert first == second
    assert said in first
    assert bool(first) == bool(said)
