"""Per-step overhead of the platform's loop over a bare PyTorch DDP loop with the same model, batch, data and processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from observability.benchmarks.measure import Comparison, measure_alternately
from observability.benchmarks.timed_model import StepCost, mean_cost
from observability.benchmarks.timed_run import run_bare_ddp, run_platform, with_timed_model
from training.config.schema import TrainingSettings

GOAL = 1.03


def compare(name: str, settings: TrainingSettings, *, rounds: int, scratch: Path) -> list[Comparison]:
    """Run both loops with torchrun for `loop.max_steps` steps; ours records metrics and events and saves every 50 steps.

    Returns:
        Wall time per step, and CPU time per step and rank.
    """
    ours: list[StepCost] = []
    theirs: list[StepCost] = []

    def measured(side: Callable[[TrainingSettings, Path], None], costs: list[StepCost]) -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        side(with_timed_model(settings, folder), folder)
        costs.append(mean_cost(folder))
        return costs[-1].wall

    wall = measure_alternately(rounds, lambda: measured(run_platform, ours), lambda: measured(run_bare_ddp, theirs))
    return [
        Comparison(name=f"step time, {name}", unit="s", ours=wall[0], theirs=wall[1], goal=GOAL),
        Comparison(
            name=f"CPU time of a step and rank, {name}",
            unit="s",
            ours=[cost.cpu for cost in ours],
            theirs=[cost.cpu for cost in theirs],
            goal=GOAL,
        ),
    ]
