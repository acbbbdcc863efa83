"""Number formats: bf16 and fp16 against fp32, the scaler at an overflow, and its exact restoration."""

from __future__ import annotations

import gc
import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.config.schema import OptimizerSettings, PrecisionSettings
from training.errors import NonFiniteLossError
from training.launch.task import RankPlace
from training.optim import build_optimizer
from training.precision import Precision

Mode = Literal["fp32", "bf16", "fp16"]
CPU = torch.device("cpu")


class Trainee:
    """A small model and its optimizer, on fixed samples."""

    def __init__(self, mode: Mode, *, initial_scale: float = 65536.0) -> None:
        torch.manual_seed(0)
        self.inputs = torch.randn(32, 10)
        self.labels = torch.randint(0, 3, (32,))
        self.model: nn.Module = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = build_optimizer(self.model, OptimizerSettings(), learning_rate=0.01)
        self.precision = Precision(PrecisionSettings(mode=mode, initial_scale=initial_scale), CPU)

    def logits(self) -> Tensor:
        with self.precision.autocast():
            logits: Tensor = self.model(self.inputs)
        return logits

    def step(self, *, factor: float = 1.0) -> bool:
        """One step whose loss, and so its gradient, is multiplied by `factor`."""
        self.optimizer.zero_grad()
        self.precision.scaled(cross_entropy(self.logits().float(), self.labels) * factor).backward()  # type: ignore[no-untyped-call]
        self.precision.unscale_(self.optimizer)
        return self.precision.step(self.optimizer)

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def scale_of(precision: Precision) -> float:
    return precision.state_dict()["scale"]


@pytest.mark.parametrize(
    ("mode", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_forward_pass_has_the_mode_s_format_and_weights_float32(mode: Mode, dtype: torch.dtype) -> None:
    trainee = Trainee(mode)
    assert trainee.logits().dtype == dtype
    assert trainee.step(), "applied"
    assert {p.dtype for p in trainee.model.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in trainee.model.parameters() if p.grad is not None} == {torch.float32}
    assert trainee.precision.scales_gradients == (mode == "fp16") == bool(trainee.precision.state_dict())


@pytest.mark.parametrize(("mode", "tolerance"), [("bf16", 2e-2), ("fp16", 3e-3)])
def test_training_in_half_precision_stays_near_fp32_and_is_not_the_same(mode: Mode, tolerance: float) -> None:
    """The tolerances are a few units of the format's precision: 2**-8 for bf16, 2**-11 for fp16."""
    half, full = Trainee(mode), Trainee("fp32")
    assert not torch.equal(half.logits().float(), full.logits())
    for _ in range(50):
        half.step()
        full.step()
    with torch.no_grad():
        losses = [float(cross_entropy(t.model(t.inputs), t.labels)) for t in (half, full)]
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)


def test_scaling_keeps_gradients_that_fp16_cannot_hold() -> None:
    """A gradient of 2**-30 lies below fp16's smallest number, 2**-24; unscaling by a power of two is exact."""
    gradients = []
    for scale in (1.0, 2.0**20):
        trainee = Trainee("fp16", initial_scale=scale)
        trainee.step(factor=2.0**-30)
        gradients.append(max(float(p.grad.abs().max()) for p in trainee.model.parameters() if p.grad is not None))
    assert gradients[0] < gradients[1]
    assert gradients[1] == pytest.approx(2.0**-30, rel=1)


def test_an_overflow_skips_the_step_and_halves_the_scale_and_a_good_step_does_neither() -> None:
    for factor in (math.inf, math.nan, 1e30, 1.0):
        trainee = Trainee("fp16", initial_scale=1024.0)
        before, is_good = trainee.weights(), factor == 1
        assert trainee.step(factor=factor) == is_good
        assert scale_of(trainee.precision) == (1024.0 if is_good else 512.0)
        same = [torch.equal(left, right) for left, right in zip(before, trainee.weights(), strict=True)]
        assert set(same) == {not is_good}, factor


def test_an_update_unscales_gradients_that_the_step_did_not() -> None:
    left, right = Trainee("fp16"), Trainee("fp16")
    left.step()
    right.precision.scaled(cross_entropy(right.logits().float(), right.labels)).backward()  # type: ignore[no-untyped-call]
    right.precision.step(right.optimizer)
    for one, other in zip(left.weights(), right.weights(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_scale_grows_after_many_good_steps_and_that_step_counts_as_applied() -> None:
    trainee = Trainee("fp16", initial_scale=1024.0)
    trainee.precision.load_state_dict({**trainee.precision.state_dict(), "growth_interval": 2})
    assert [trainee.step(), trainee.step()] == [True, True]
    assert scale_of(trainee.precision) == 2048.0


def test_a_gradient_that_overflows_at_every_scale_ends_the_run() -> None:
    trainee = Trainee("fp16")
    applied = [trainee.step(factor=math.nan) for _ in range(29)]
    with pytest.raises(NonFiniteLossError, match="overflows at every loss scale down to 6") as failure:
        trainee.step(factor=math.nan)
    assert not any(applied)
    assert "precision.mode=bf16" in failure.value.remedy


def test_a_restored_scaler_continues_bit_for_bit() -> None:
    factors = [1.0, math.inf, 1.0, 1.0, math.inf, 1.0]
    whole, first, second = (Trainee("fp16") for _ in range(3))
    for factor in factors:
        whole.step(factor=factor)
    for factor in factors[:3]:
        first.step(factor=factor)
    second.step()  # a scaler that was used takes the state too
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.precision.load_state_dict(first.precision.state_dict())
    for factor in factors[3:]:
        second.step(factor=factor)
    assert second.precision.state_dict() == whole.precision.state_dict()
    assert all(torch.equal(left, right) for left, right in zip(whole.weights(), second.weights(), strict=True))


def test_state_of_another_mode_leaves_fp16_at_its_initial_scale() -> None:
    precision = Trainee("fp16", initial_scale=32.0).precision
    precision.load_state_dict(Trainee("bf16").precision.state_dict())
    assert scale_of(precision) == 32.0


def _overflow_on_rank_1(place: RankPlace) -> tuple[list[bool], float, list[float]]:
    """Which of three steps were applied, the scale, and a weight."""
    with in_group(place):
        trainee = Trainee("fp16", initial_scale=1024.0)
        trainee.model = DistributedDataParallel(trainee.model)
        factors = (1.0, math.inf if place.rank == 1 else 1.0, 1.0)
        applied = [trainee.step(factor=factor) for factor in factors]
        found = applied, scale_of(trainee.precision), trainee.weights()[0].flatten().tolist()
        # The group's threads end with its last reference, which the model's cycles hold. One that still waited for the interpreter's
        # lock when Python ends would abort the process.
        del trainee
        gc.collect()
        return found


def test_an_overflow_on_one_rank_makes_every_rank_skip() -> None:
    first, second = on_ranks(2, _overflow_on_rank_1)
    assert first == second
    assert first[:2] == ([True, False, True], 512.0)
