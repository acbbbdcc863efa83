"""Per-step overhead of the platform's loop over a bare PyTorch DDP loop with the same model, batch, data and processes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from observability.benchmarks.measure import Comparison, measure_alternately, run_module
from observability.benchmarks.timed_model import StepCost, mean_cost
from training.config.schema import TrainingSettings
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask

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
        side(_with_timed_model(settings, folder), folder)
        costs.append(mean_cost(folder))
        return costs[-1].wall

    wall = measure_alternately(rounds, lambda: measured(_run_ours, ours), lambda: measured(_run_theirs, theirs))
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


def _with_timed_model(settings: TrainingSettings, folder: Path) -> TrainingSettings:
    """The settings with a model that writes its step costs to `folder`."""
    assert settings.loop.max_steps is not None, "the model reads the clocks in the last step"
    model = {
        "name": "observability.benchmarks.timed_model:build_timed_model",
        "options": {
            **settings.model.options,
            "network": settings.model.name,
            "folder": str(folder),
            "steps": settings.loop.max_steps,
        },
    }
    return TrainingSettings.model_validate({**settings.model_dump(), "model": model})


def _run_ours(settings: TrainingSettings, folder: Path) -> None:
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    (folder / "task.json").write_text(json.dumps(task.dump()), encoding="utf-8")
    _torchrun(settings, "training.launch.rank", folder / "task.json")


def _run_theirs(settings: TrainingSettings, folder: Path) -> None:
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json(), encoding="utf-8")
    _torchrun(settings, "observability.benchmarks.bare_ddp", file)


def _torchrun(settings: TrainingSettings, module: str, argument: Path) -> None:
    run_module(
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={settings.scale.workers}",
        "-m",
        module,
        str(argument),
        **{DRIVER_VARIABLE: str(os.getpid())},
    )
