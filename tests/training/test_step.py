"""One optimizer step: the gradient is that of the global mean, a bad step changes nothing, and a GPU's clock is the device's."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.engines.report_table import ran, skipped
from training.config.schema import PrecisionSettings
from training.data.types import Batch
from training.errors import SettingsError
from training.gpu_usage import GpuProbe
from training.objectives.classification import Classification
from training.objectives.options import ClassificationOptions
from training.precision import Precision
from training.seeding import seed_step
from training.step import StepResult, StepRunner
from training.step_clock import step_clock
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import Strategy

CPU = torch.device("cpu")


class Recording(SingleProcess):
    """A single-process strategy that pretends to average over `averaged_ranks` and counts accumulating micro-batches."""

    def __init__(self, module: nn.Module, *, learning_rate: float = 1.0, averaged_ranks: int = 1) -> None:
        super().__init__(module, lambda module: torch.optim.SGD(module.parameters(), lr=learning_rate))
        self.averaged_ranks = averaged_ranks
        self.held_back = 0

    def accumulating(self) -> AbstractContextManager[None]:
        self.held_back += 1
        return nullcontext()


class Spy(nn.Linear):
    """A linear layer that records its outputs and a random number per forward pass."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.outputs: list[Tensor] = []
        self.draws: list[float] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.draws.append(torch.rand(()).item())
        self.outputs.append(super().forward(inputs))
        return self.outputs[-1]


def batch(start: int, samples: int, *, rows: int | None = None) -> Batch:
    """Rows `start ...` of a fixed synthetic dataset, of which `samples` count."""
    generator = torch.Generator().manual_seed(7)
    inputs, labels = torch.randn(64, 6, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    end = start + (rows or samples)
    return Batch(
        inputs=inputs[start:end], targets=labels[start:end], ids=np.arange(start, start + samples), count=samples
    )


def linear() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(6, 3)


def runner_of(
    strategy: Strategy,
    *,
    precision: PrecisionSettings | None = None,
    clip_norm: float | None = None,
    keeps_buffers: bool = False,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
) -> StepRunner:
    return StepRunner(
        strategy=strategy,
        objective=Classification(3, ClassificationOptions()),
        precision=Precision(precision or PrecisionSettings(), CPU),
        device=CPU,
        clip_norm=clip_norm,
        seed=seed,
        rank=rank,
        world=world,
        keeps_buffers=keeps_buffers,
    )


def run_step(model: nn.Module, *batches: Batch, total: int | None = None, clip_norm: float | None = None) -> StepResult:
    """One step of SGD with learning rate 1: the weights move by the gradient."""
    global_count = total or sum(b.count for b in batches)
    return runner_of(Recording(model), clip_norm=clip_norm).run(1, list(batches), global_count=global_count)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def gradient_of_mean(model: nn.Module, samples: Batch, *, divisor: int) -> Tensor:
    """The gradient by autograd of the summed losses over a divisor."""
    loss = cross_entropy(model(samples.inputs), samples.targets, reduction="sum") / divisor
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_sums_and_gradient_are_those_of_the_samples_of_all_micro_batches_that_count() -> None:
    model, whole = linear(), batch(0, 8)
    expected, before = gradient_of_mean(model, whole, divisor=8), weights(model)
    logits = model(whole.inputs).detach()
    result = run_step(model, batch(0, 5, rows=7), batch(5, 3))
    assert result.samples == 8
    assert result.loss_sum == pytest.approx(float(cross_entropy(logits, whole.targets, reduction="sum")), rel=1e-6)
    assert result.sums == [result.loss_sum, int((logits.argmax(dim=1) == whole.targets).sum())]
    torch.testing.assert_close(before - weights(model), expected)
    assert result.gradient_norm == pytest.approx(float(expected.norm()), rel=1e-6)


def test_the_gradient_is_divided_by_the_global_count_and_multiplied_by_the_ranks_that_average_it() -> None:
    model = linear()
    expected, before = 3 * gradient_of_mean(model, batch(0, 8), divisor=24), weights(model)
    runner_of(Recording(model, averaged_ranks=3)).run(1, [batch(0, 8)], global_count=24)
    torch.testing.assert_close(before - weights(model), expected)


def test_gradients_are_not_carried_over_into_the_next_step() -> None:
    model = linear()
    strategy = Recording(model)
    runner = runner_of(strategy)
    runner.run(1, [batch(0, 8)], global_count=8)
    expected, before = gradient_of_mean(model, batch(8, 8), divisor=8), weights(model)
    runner.run(2, [batch(8, 8)], global_count=8)
    torch.testing.assert_close(before - weights(model), expected)


def test_gradients_accumulate_locally_for_every_micro_batch_but_the_last() -> None:
    for micro_batches in (1, 2, 4):
        strategy = Recording(linear())
        runner_of(strategy).run(1, [batch(2 * i, 2) for i in range(micro_batches)], global_count=2 * micro_batches)
        assert strategy.held_back == micro_batches - 1


def test_a_rank_without_samples_adds_nothing() -> None:
    model = linear()
    before = weights(model)
    result = run_step(model, batch(0, 0, rows=2), total=8)
    assert (result.sums, result.samples, result.gradient_norm) == ([0.0, 0.0], 0, 0.0)
    assert torch.equal(weights(model), before)


def test_a_gradient_longer_than_the_limit_is_scaled_to_it_and_no_other() -> None:
    free, clipped = linear(), linear()
    norm = run_step(free, batch(0, 16)).gradient_norm
    assert run_step(clipped, batch(0, 16), clip_norm=norm / 4).gradient_norm == norm
    moved, moved_freely = (weights(model) - weights(linear()) for model in (clipped, free))
    torch.testing.assert_close(moved, moved_freely / 4, rtol=1e-4, atol=1e-7)
    for factor in (1, 2):
        limited = linear()
        run_step(limited, batch(0, 16), clip_norm=factor * norm)
        assert torch.equal(weights(limited), weights(free))


def test_the_draws_of_a_forward_pass_are_a_function_of_seed_step_micro_batch_and_rank() -> None:
    model = Spy()
    runner_of(Recording(model), seed=5, rank=2).run(9, [batch(0, 2), batch(2, 2)], global_count=4)
    expected = []
    for micro in range(2):
        seed_step(5, 9, micro, 2)
        expected.append(torch.rand(()).item())
    assert model.draws == expected


class Drawing(nn.Module):
    """Adds a draw of a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generators = {"torch": [torch.Generator()]}

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand((), generator=self.generators["torch"][0])


class OwnGenerators(nn.Linear):
    """Records a draw of a generator of its own, and one of its part's, per forward pass."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.part = Drawing()
        self.deep = nn.Sequential(nn.Sequential(nn.Sequential(self.part)))
        self.numpy = np.random.default_rng(0)
        self.draws: list[tuple[float, float]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.draws.append((float(self.part(torch.zeros(()))), self.numpy.random()))
        return super().forward(inputs)


def test_generators_of_the_model_s_own_draw_the_numbers_of_the_step_too() -> None:
    model = OwnGenerators()
    runner = runner_of(Recording(model))
    for step in (1, 2, 1):
        runner.run(step, [batch(0, 2), batch(2, 2)], global_count=4)
    assert model.draws[:2] == model.draws[4:]
    assert len(set(model.draws)) == 4


class Unfreezing(nn.Linear):
    """Trains its bias from the second step on."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.bias.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.bias.requires_grad_(self.trains_bias)
        return super().forward(inputs)

    trains_bias = False


def test_a_weight_that_is_unfrozen_during_training_is_refused_before_a_step_without_it() -> None:
    model = Unfreezing()
    runner = runner_of(Recording(model))
    runner.run(1, [batch(0, 2)], global_count=2)
    model.trains_bias, before = True, weights(model)
    with pytest.raises(SettingsError, match=r"model\.name: bias was frozen"):
        runner.run(2, [batch(0, 2)], global_count=2)
    assert torch.equal(weights(model), before)


class InPlace(Unfreezing):
    """Changes what its outputs depend on."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs).exp()
        outputs.detach().mul_(2)
        return outputs


def test_a_tensor_that_is_changed_in_place_before_the_backward_pass_is_refused_in_words() -> None:
    with pytest.raises(SettingsError, match=r"changed a tensor in place \(torch\.FloatTensor \[2, \d+\]"):
        runner_of(Recording(InPlace())).run(1, [batch(0, 2)], global_count=2)


def test_a_weight_that_is_replaced_during_training_is_refused_before_a_step_without_it() -> None:
    model = Unfreezing()
    runner = runner_of(Recording(model))
    runner.run(1, [batch(0, 2)], global_count=2)
    model.weight = nn.Parameter(model.weight.detach() * 2)
    for rows in (2, 0):  # a step that fails, perhaps for that reason
        with pytest.raises(SettingsError, match=r"model\.name: weight is not the parameter any more"):
            runner.run(2, [batch(0, rows)], global_count=2)


def test_the_forward_pass_runs_in_the_format_of_the_precision_and_the_loss_in_float32() -> None:
    model = Spy()
    runner = runner_of(Recording(model), precision=PrecisionSettings(mode="bf16"))
    result = runner.run(1, [batch(0, 8)], global_count=8)
    assert model.outputs[0].dtype == torch.bfloat16
    loss = cross_entropy(model.outputs[0].detach().float(), batch(0, 8).targets, reduction="sum")
    assert result.loss_sum == float(loss)


def test_the_parts_of_a_step_are_timed_over_all_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks each time it is read: at the ends of each forward and backward pass, and at the end."""
    monkeypatch.setattr("training.step_clock.time.perf_counter", count(100.0).__next__)
    result = run_step(linear(), batch(0, 2), batch(2, 2), batch(4, 2))
    assert (result.forward_seconds, result.backward_seconds, result.optimizer_seconds) == (3.0, 3.0, 1.0)
    assert result.communication_seconds == 0.0


def bad_batch() -> Batch:
    bad = batch(0, 8)
    return replace(bad, inputs=bad.inputs.index_fill(1, torch.tensor([1]), float("nan")))


class Reassigning(nn.Module):
    """Assigns a new tensor to its buffer in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.scale = 0.9 * self.scale + 0.1 * inputs.detach().std()
        return inputs * self.scale


def test_a_step_that_is_not_finite_changes_neither_weights_nor_buffers() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), Reassigning(), nn.Linear(8, 3))
    runner = runner_of(Recording(model), keeps_buffers=True)
    for step in (1, 2):
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        result = runner.run(step, [bad_batch()], global_count=8)
        assert not result.applied
        assert not math.isfinite(result.gradient_norm)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name]), name
        assert runner.run(step, [batch(0, 8)], global_count=8).applied
        moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
        assert moved >= {"0.weight", "4.bias", *dict(model.named_buffers())}


def test_under_fp16_a_step_that_is_not_finite_lowers_the_scale_and_is_not_applied() -> None:
    model = linear()
    runner = runner_of(Recording(model), precision=PrecisionSettings(mode="fp16", initial_scale=1024.0))
    assert not runner.run(1, [bad_batch()], global_count=8).applied
    assert runner.precision.state_dict()["scale"] == 512.0
    assert torch.equal(weights(model), weights(linear()))


def test_under_fp16_the_norm_and_the_limit_are_those_of_the_unscaled_gradient() -> None:
    half, full = linear(), linear()
    limit = run_step(full, batch(0, 8)).gradient_norm / 2
    runner = runner_of(Recording(half), precision=PrecisionSettings(mode="fp16", initial_scale=1024.0), clip_norm=limit)
    result = runner.run(1, [batch(0, 8)], global_count=8)
    assert result.applied
    assert result.gradient_norm == pytest.approx(2 * limit, rel=1e-2)
    assert float((weights(half) - weights(linear())).norm()) == pytest.approx(limit, rel=1e-2)


@pytest.fixture
def gpu() -> torch.device:
    """The first GPU; skips without one."""
    if not torch.cuda.is_available():
        skipped("GPU", "torch sees no GPU", "run the tests on a machine with one")
    ran("GPU")
    return torch.device("cuda", 0)


def test_work_of_the_gpu_counts_between_its_marks(gpu: torch.device) -> None:
    clock = step_clock(gpu)
    matrix = torch.randn(4096, 4096, device=gpu)
    for _ in range(2):  # the second time with events of the first
        clock.restart()
        began = clock.mark()
        small = clock.mark()
        for _ in range(20):
            matrix @ matrix
        large = clock.mark()
        torch.cuda.synchronize(gpu)
        assert clock.seconds(began, small) < clock.seconds(small, large)
        assert clock.seconds_since(large) >= 0


def test_a_probe_sees_the_memory_of_tensors(gpu: torch.device) -> None:
    probe = GpuProbe(gpu)
    before = probe.read().allocated_bytes
    kept = torch.empty(2**20, dtype=torch.uint8, device=gpu)
    after = probe.read()
    assert after.allocated_bytes - before >= kept.numel()
    assert after.reserved_bytes >= after.allocated_bytes
