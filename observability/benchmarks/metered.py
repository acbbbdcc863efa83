"""The stopwatch of the per-step overhead, the same for both sides: a model that reads the clocks at two of its forward passes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch.distributed as dist
from torch import nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.models import registry as models

WARMUP = 20
"""Steps that are not measured."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Seconds of a step: on the clock, and of all threads of a rank on the CPUs.

    The latter hardly depend on what else the machine does; a checkpoint's thread and gloo's are in them, waiting is not.
    """

    wall: float
    cpu: float


def metered(
    spec: SampleSpec, *, network: str, folder: str, steps: int, **options: bool | float | str | None
) -> nn.Module:
    """The model `network` with its `options`; each rank leaves in `folder` what a step cost it, once it begins step `steps`.

    What is measured begins with the forward pass of step `WARMUP` and ends with that of step `steps`.
    """
    module = models.build_model(ModelSettings.model_validate({"name": network, "options": options}), spec)
    step, wall, cpu = 0, 0.0, 0.0

    def read_clocks(module: nn.Module, _: object) -> None:
        nonlocal step, wall, cpu
        step += module.training
        if step == WARMUP:
            wall, cpu = time.perf_counter(), time.process_time()
        elif step == steps and module.training:
            cost = StepCost(
                wall=(time.perf_counter() - wall) / (steps - WARMUP),
                cpu=(time.process_time() - cpu) / (steps - WARMUP),
            )
            (Path(folder) / f"rank-{dist.get_rank()}.json").write_text(json.dumps(asdict(cost)), encoding="utf-8")

    module.register_forward_pre_hook(read_clocks)
    return module


def mean_cost(folder: Path) -> StepCost:
    """The mean over the ranks that left theirs in the folder."""
    costs = [StepCost(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("rank-*.json")]
    return StepCost(
        wall=sum(cost.wall for cost in costs) / len(costs), cpu=sum(cost.cpu for cost in costs) / len(costs)
    )
