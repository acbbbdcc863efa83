"""What a step of the platform's loop costs more than one of another loop with the same model, batch, data and processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from observability.benchmarks.measure import Comparison, measure_alternately
from observability.benchmarks.timed_model import StepCost, mean_cost
from observability.benchmarks.timed_run import run_bare_ddp, run_platform, run_unmeasured, with_timed_model
from training.config.schema import TrainingSettings

Run = Callable[[TrainingSettings, Path], None]

GOAL = 1.03
"""Step time relative to a bare PyTorch DDP loop."""

METRICS_GOAL = 1.01
"""Step time relative to the same loop without metrics."""


def compare(name: str, settings: TrainingSettings, *, rounds: int, scratch: Path) -> list[Comparison]:
    """Compare with a bare PyTorch DDP loop; ours records metrics and events and saves every 50 steps.

    Returns:
        Wall time per step, and CPU time per step and rank.
    """
    return _compare(name, settings, run_bare_ddp, goal=GOAL, rounds=rounds, scratch=scratch)


def compare_metrics(name: str, settings: TrainingSettings, *, rounds: int, scratch: Path) -> list[Comparison]:
    """Compare with the same loop without the metrics of its steps; returns what `compare` does."""
    name = f"with metrics, {name}"
    return _compare(name, settings, run_unmeasured, goal=METRICS_GOAL, rounds=rounds, scratch=scratch)


def _compare(
    name: str, settings: TrainingSettings, other: Run, *, goal: float, rounds: int, scratch: Path
) -> list[Comparison]:
    """Run both with torchrun for `loop.max_steps` steps."""
    ours: list[StepCost] = []
    theirs: list[StepCost] = []

    def measured(side: Run, costs: list[StepCost]) -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        side(with_timed_model(settings, folder), folder)
        costs.append(mean_cost(folder))
        return costs[-1].wall

    def platform() -> float:
        return measured(run_platform, ours)

    def baseline() -> float:
        return measured(other, theirs)

    wall = measure_alternately(rounds, platform, baseline)
    return [
        Comparison(name=f"step time, {name}", unit="s", ours=wall[0], theirs=wall[1], goal=goal),
        Comparison(
            name=f"CPU time of a step and rank, {name}",
            unit="s",
            ours=[cost.cpu for cost in ours],
            theirs=[cost.cpu for cost in theirs],
            goal=goal,
        ),
    ]
