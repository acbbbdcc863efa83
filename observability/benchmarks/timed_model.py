"""Measures the time of a step in the same way on both sides: a model that reads the clocks in two of its forward passes."""

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

WARMUP_STEPS = 20
"""Steps before the measurement."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Wall and CPU seconds of a step; CPU time covers all threads of a rank.

    CPU time hardly depends on other load. It includes the threads of gloo and of checkpoints, but no waiting.
    """

    wall: float
    cpu: float


def build_timed_model(
    spec: SampleSpec,
    *,
    network: str,
    folder: str,
    steps: int,
    delay: float = 0.0,
    **options: bool | float | str | None,
) -> nn.Module:
    """Build the model `network` with its `options`; each rank writes its `StepCost` to `folder` when step `steps` begins.

    The measurement begins with the forward pass of step `WARMUP_STEPS` and ends with that of step `steps`. A `delay` makes every
    step of training longer by so many seconds, in which the rank computes nothing of use.
    """
    module = models.build_model(ModelSettings.model_validate({"name": network, "options": options}), spec)
    step, wall, cpu = 0, 0.0, 0.0

    def read_clocks(module: nn.Module, _: object) -> None:
        nonlocal step, wall, cpu
        step += module.training
        until = time.perf_counter() + delay * module.training
        while time.perf_counter() < until:
            pass
        if step == WARMUP_STEPS:
            wall, cpu = time.perf_counter(), time.process_time()
        elif step == steps and module.training:
            cost = StepCost(
                wall=(time.perf_counter() - wall) / (steps - WARMUP_STEPS),
                cpu=(time.process_time() - cpu) / (steps - WARMUP_STEPS),
            )
            # A single rank of ours has no process group.
            rank = dist.get_rank() if dist.is_initialized() else 0
            (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(asdict(cost)), encoding="utf-8")

    module.register_forward_pre_hook(read_clocks)
    return module


def mean_cost(folder: Path) -> StepCost:
    """The mean of the step costs that the ranks wrote to `folder`."""
    costs = [StepCost(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("rank-*.json")]
    return StepCost(
        wall=sum(cost.wall for cost in costs) / len(costs), cpu=sum(cost.cpu for cost in costs) / len(costs)
    )
