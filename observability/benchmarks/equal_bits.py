"""What the same bits with any number of workers cost: steps of logical shards beside those of plain DDP, in the same loop."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from observability.benchmarks.measure import Comparison, measure_alternately
from observability.benchmarks.timed_model import StepCost, mean_cost
from observability.benchmarks.timed_run import run_platform, with_timed_model
from training.config.schema import TrainingSettings

GOAL = 1.15
"""Time of a step relative to DDP's with the same micro-batches."""


_RESNET: dict[str, Any] = {
    "model": {"name": "resnet18", "options": {"stem": "cifar"}},
    "data": {
        "dataset": "synthetic",
        "augment": False,
        "options": {"kind": "images", "channels": 3, "height": 32, "width": 32, "samples": 2048},
    },
    "loop": {"max_steps": 44, "global_batch": 32},
}
_CNN: dict[str, Any] = {"data": {"augment": False}, "loop": {"max_steps": 220, "global_batch": 64}}
_MLP: dict[str, Any] = {
    "model": {"name": "mlp", "options": {"hidden": [2048, 2048, 2048]}},
    "data": {"augment": False},
    "loop": {"max_steps": 100, "global_batch": 64},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job with a number of logical shards, and DDP with so many micro-batches."""

    name: str
    job: dict[str, Any]
    shards: int
    accumulation: int


CASES = [
    Case(name="small CNN, 2 shards; DDP", job=_CNN, shards=2, accumulation=1),
    Case(name="small CNN, 8 shards; DDP, accumulation 4", job=_CNN, shards=8, accumulation=4),
    Case(name="small CNN, 8 shards; DDP", job=_CNN, shards=8, accumulation=1),
    Case(name="MLP of 8.5 million weights, 2 shards; DDP", job=_MLP, shards=2, accumulation=1),
    Case(name="MLP of 8.5 million weights, 8 shards; DDP, accumulation 4", job=_MLP, shards=8, accumulation=4),
    Case(name="ResNet-18 on 32 x 32, 8 shards; DDP, accumulation 4", job=_RESNET, shards=8, accumulation=4),
]
"""Two workers each. The MLP computes little for every gradient that it sends, and is the worst case by choice."""


def compare(case: Case, *, rounds: int, scratch: Path) -> list[Comparison]:
    """Run both with torchrun; returns the wall time of a step, and its CPU time on a rank."""
    ours: list[StepCost] = []
    theirs: list[StepCost] = []

    def measured(costs: list[StepCost], **loop: int) -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        settings = _settings(case.job, **loop)
        run_platform(with_timed_model(settings, folder), folder)
        of_forward = mean_cost(folder)  # the model counts its forward passes
        number = settings.micro_batches
        costs.append(StepCost(wall=number * of_forward.wall, cpu=number * of_forward.cpu))
        return costs[-1].wall

    def shards() -> float:
        return measured(ours, logical_shards=case.shards)

    def plain() -> float:
        return measured(theirs, accumulation=case.accumulation)

    wall = measure_alternately(rounds, shards, plain)
    return [
        Comparison(name=f"step time, {case.name}", unit="s", ours=wall[0], theirs=wall[1], goal=GOAL),
        Comparison(
            name=f"CPU time of a step and rank, {case.name}",
            unit="s",
            ours=[cost.cpu for cost in ours],
            theirs=[cost.cpu for cost in theirs],
            goal=GOAL,
        ),
    ]


def _settings(job: dict[str, Any], **loop: int) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {
            **job,
            "loop": {"epochs": 1000, "evaluate_every": 1000, **job["loop"], **loop},
            "scale": {"launcher": "torchrun", "workers": 2},
            "tracking": {"enabled": False},
        }
    )
