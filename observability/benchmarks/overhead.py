"""Per-step overhead of the whole platform loop over a bare PyTorch DDP loop: same model, batch, data and processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from observability.benchmarks.bare_ddp import WARMUP
from observability.benchmarks.measure import Comparison, in_turns, last_json, run_module
from observability.runlog import Step, read_all, select
from training.config.schema import TrainingSettings
from training.launch.processes import DRIVER_VARIABLE
from training.launch.rank import TASK_FILE
from training.launch.task import RankTask

GOAL = 1.03


def compare(name: str, settings: TrainingSettings, *, rounds: int, scratch: Path) -> Comparison:
    """Both loops under torchrun for `loop.max_steps` steps, ours with metrics, events and a checkpoint every 50 steps."""
    world = settings.scale.workers

    def torchrun(*arguments: str) -> str:
        driver = {DRIVER_VARIABLE: str(os.getpid())}
        return run_module("torch.distributed.run", "--standalone", f"--nproc-per-node={world}", *arguments, **driver)[2]

    def ours() -> float:
        folder = scratch / f"{name}-{len(list(scratch.iterdir()))}"
        folder.mkdir(parents=True)
        task = RankTask(settings=settings, run_directory=folder, attempt=0)
        (folder / TASK_FILE).write_text(json.dumps(task.dump()), encoding="utf-8")
        torchrun("-m", "training.launch.rank", str(folder / TASK_FILE))
        steps = select(read_all(folder), Step)[WARMUP - 1 :]
        return (steps[-1].time - steps[0].time) / (len(steps) - 1)

    def theirs() -> float:
        file = scratch / f"{name}.json"
        file.write_text(settings.model_dump_json(), encoding="utf-8")
        return float(last_json(torchrun("-m", "observability.benchmarks.bare_ddp", str(file)))["step_seconds"])

    mine, others = in_turns(rounds, ours, theirs)
    return Comparison(name=f"step time, {name}", unit="s", ours=mine, theirs=others, goal=GOAL)
