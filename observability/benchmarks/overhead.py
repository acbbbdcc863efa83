"""Per-step overhead of the whole platform loop over a bare PyTorch DDP loop: same model, batch, data and processes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from observability.benchmarks.measure import Comparison, in_turns, run_module
from observability.benchmarks.metered import StepCost, mean_cost
from training.config.schema import TrainingSettings
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import TASK_FILE, RankTask

GOAL = 1.03


def compare(name: str, settings: TrainingSettings, *, rounds: int, scratch: Path) -> list[Comparison]:
    """Both loops under torchrun for `loop.max_steps` steps, ours with metrics, events and a checkpoint every 50 steps.

    Returns:
        Wall time of a step, and CPU time of a step and rank.
    """
    ours: list[StepCost] = []
    theirs: list[StepCost] = []

    def measured(side: Callable[[TrainingSettings, Path], None], costs: list[StepCost]) -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        side(_metered(settings, folder), folder)
        costs.append(mean_cost(folder))
        return costs[-1].wall

    wall = in_turns(rounds, lambda: measured(_run_ours, ours), lambda: measured(_run_theirs, theirs))
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


def _metered(settings: TrainingSettings, folder: Path) -> TrainingSettings:
    """The settings with a model that leaves in the folder what a step costs."""
    assert settings.loop.max_steps is not None, "the last step is when the clocks are read"
    model = {
        "name": "observability.benchmarks.metered:metered",
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
    (folder / TASK_FILE).write_text(json.dumps(task.dump()), encoding="utf-8")
    _torchrun(settings, "training.launch.rank", folder / TASK_FILE)


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
