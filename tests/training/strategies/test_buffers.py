"""Buffers of rank 0 are those that every step begins with: a resumed run has no others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group, train
from training.data.types import Batch, SampleSpec
from training.launch.task import RankPlace
from training.passes import PassesDone
from training.strategies.buffers import FromBuffersOfRank0


class Centred(nn.Module):
    """Blocks that subtract a mean which follows their samples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("mean", torch.zeros(width))
        self.mean: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.tanh(self.layer(inputs - self.mean))
        if self.training:
            self.mean.lerp_(inputs.detach().mean(0), 0.5)
        return outputs


def centred(spec: SampleSpec) -> nn.Module:
    width = math.prod(spec.shape)
    return nn.Sequential(nn.Flatten(), Centred(width), Centred(width), nn.Linear(width, spec.outputs))


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "fsdp2"},
        pytest.param({"name": "zero2"}, marks=pytest.mark.extended),
        pytest.param({"name": "pipeline", "stages": 2}, marks=pytest.mark.extended),
    ],
    ids=lambda one: one["name"],
)
def test_a_run_that_resumes_computes_with_the_buffers_of_one_that_went_on(
    tmp_path: Path, strategy: dict[str, Any]
) -> None:
    ranks = 4 if strategy["name"] == "pipeline" else 2
    model, schedule = {"name": f"{__name__}:centred"}, {"name": "constant"}

    def trained(folder: str, steps: int) -> str:
        loop = {"max_steps": steps, "accumulation": 2}
        return train(tmp_path / folder, ranks, model=model, schedule=schedule, strategy=strategy, loop=loop)

    trained("parted", 3)
    assert trained("parted", 6) == trained("whole", 6)


class Changing:
    """Passes that write the rank's number and the step into buffers, and note what they have found there."""

    has_losses = True

    def __init__(self, module: nn.Module, rank: int) -> None:
        self.module, self.rank = module, rank
        self.found: list[dict[str, float]] = []

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        del micro_batches, total
        self.found.append({name: float(one) for name, one in self.module.named_buffers()})
        self.module.get_buffer("saved").fill_(10 * step + self.rank)
        setattr(self.module, "assigned", torch.tensor(10.0 * step + self.rank))  # noqa: B010
        return PassesDone()


def _found(place: RankPlace) -> list[dict[str, float]]:
    with in_group(place):
        module = nn.Module()
        module.register_buffer("saved", torch.tensor(0.0))
        module.register_buffer("assigned", torch.tensor(0.0), persistent=False)
        module.register_buffer("table", torch.tensor(float(place.rank)), persistent=False)
        inner = Changing(module, place.rank)
        passes = FromBuffersOfRank0(inner, module)
        for step in range(3):
            passes.run(step, [], total=1)
        return inner.found


def test_buffers_that_change_are_copied_before_each_step_and_tables_never() -> None:
    first, second = on_ranks(2, _found)
    begun = [{"saved": value, "assigned": value, "table": 0.0} for value in (0.0, 0.0, 10.0)]
    assert first == begun
    assert second == [{**one, "table": 1.0} for one in begun]
