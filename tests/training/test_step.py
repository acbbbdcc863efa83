"""One optimizer step: the gradient is that of the global mean, and a bad step changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from training.config.schema import PrecisionSettings
from training.data.types import Batch
from training.precision import Precision
from training.step import StepResult, StepRunner

CPU = torch.device("cpu")


def batch(start: int, count: int, *, rows: int | None = None) -> Batch:
    """Rows `start ...` of a fixed made-up dataset, of which `count` count."""
    generator = torch.Generator().manual_seed(7)
    inputs, labels = torch.randn(64, 6, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    end = start + (rows or count)
    return Batch(inputs=inputs[start:end], labels=labels[start:end], ids=np.arange(start, start + count), count=count)


def run_step(
    batches: list[Batch], *, clip_norm: float | None = None, keeps_buffers: bool = False, step: int = 1
) -> tuple[StepResult, nn.Module]:
    """One SGD step of a small network with dropout-free batch norm; the result and the network after it."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    batches = [Batch(inputs=b.inputs.double(), labels=b.labels, ids=b.ids, count=b.count) for b in batches]
    runner = StepRunner(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        precision=Precision(PrecisionSettings(), CPU),
        device=CPU,
        clip_norm=clip_norm,
        seed=0,
        rank=0,
        world=1,
        keeps_buffers=keeps_buffers,
    )
    return runner.run(step, batches, global_count=sum(b.count for b in batches)), model


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_the_loss_is_summed_over_the_samples_that_count() -> None:
    whole, _ = run_step([batch(0, 8)])
    assert whole.samples == 8
    assert 0 <= int(whole.correct) <= 8
    assert float(whole.loss_sum) == pytest.approx(8 * np.log(3), rel=0.5)


def test_padding_rows_do_not_reach_the_gradient_of_the_last_layer() -> None:
    # Batch norm sees the padding; what follows it sees only the rows that count. With evaluation statistics it would be exact.
    padded, _ = run_step([batch(0, 4, rows=8)])
    assert padded.samples == 4
    alone, _ = run_step([batch(0, 4, rows=4)])
    assert float(padded.loss_sum) != float(alone.loss_sum)


def test_accumulated_micro_batches_make_the_gradient_of_the_mean_over_all_samples() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3).double()
    first, second = batch(0, 5), batch(5, 3)
    expected = torch.autograd.grad(
        nn.functional.cross_entropy(
            model(torch.cat([first.inputs, second.inputs]).double()), torch.cat([first.labels, second.labels])
        ),
        list(model.parameters()),
    )
    before = weights(model)
    runner = StepRunner(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        precision=Precision(PrecisionSettings(), CPU),
        device=CPU,
        clip_norm=None,
        seed=0,
        rank=0,
        world=1,
        keeps_buffers=False,
    )
    micro = [Batch(inputs=b.inputs.double(), labels=b.labels, ids=b.ids, count=b.count) for b in (first, second)]
    result = runner.run(1, micro, global_count=8)
    moved = before - weights(model)
    assert torch.allclose(moved, torch.cat([g.reshape(-1) for g in expected]), atol=1e-12)
    assert result.gradient_norm == pytest.approx(float(moved.norm()), rel=1e-9)


def test_a_gradient_longer_than_the_limit_is_scaled_to_it() -> None:
    free, model_free = run_step([batch(0, 16)])
    limit = free.gradient_norm / 4
    clipped, model_clipped = run_step([batch(0, 16)], clip_norm=limit)
    torch.manual_seed(3)
    start = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    ratio = (weights(model_clipped) - weights(start)).norm() / (weights(model_free) - weights(start)).norm()
    assert clipped.gradient_norm == free.gradient_norm
    assert float(ratio) == pytest.approx(0.25, rel=1e-5)


def test_a_step_with_a_nan_input_changes_neither_weights_nor_batch_norm_statistics() -> None:
    bad = batch(0, 8)
    bad.inputs[2, 1] = float("nan")
    result, model = run_step([bad], keeps_buffers=True)
    _, untouched = run_step([batch(0, 8)])
    torch.manual_seed(3)
    start = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    assert not result.applied
    assert not np.isfinite(result.gradient_norm)
    assert torch.equal(weights(model), weights(start))
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, dict(start.named_buffers())[name]), name
    assert not torch.equal(weights(untouched), weights(start))
