"""Runs one training program whose model measures its steps: the platform's loop, bare DDP, or Ray Train's documented loop."""

from __future__ import annotations

import json
import os
from pathlib import Path

from observability.benchmarks.measure import run_module
from training.config.schema import TrainingSettings
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask


def with_timed_model(settings: TrainingSettings, folder: Path, *, delay: float = 0.0) -> TrainingSettings:
    """The settings with a model that writes its step costs to `folder`; `loop.max_steps` has to be set.

    Args:
        settings: the job.
        folder: where the ranks write.
        delay: seconds that are added to every step.
    """
    assert settings.loop.max_steps is not None, "the model reads the clocks in the last step"
    model = {
        "name": "observability.benchmarks.timed_model:build_timed_model",
        "options": {
            **settings.model.options,
            "network": settings.model.name,
            "folder": str(folder),
            "steps": settings.loop.max_steps,
            "delay": delay,
        },
    }
    return TrainingSettings.model_validate({**settings.model_dump(), "model": model})


def run_platform(settings: TrainingSettings, folder: Path) -> None:
    """The platform's ranks under torchrun; their event log comes into `folder`."""
    _torchrun(settings, "training.launch.rank", _task(settings, folder))


def run_unmeasured(settings: TrainingSettings, folder: Path) -> None:
    """The same without the metrics of the steps."""
    _torchrun(settings, "observability.benchmarks.unmeasured_rank", _task(settings, folder))


def run_bare_ddp(settings: TrainingSettings, folder: Path) -> None:
    """`bare_ddp` under torchrun."""
    _torchrun(settings, "observability.benchmarks.bare_ddp", _written(settings, folder))


def run_ray_documented(settings: TrainingSettings, folder: Path) -> None:
    """`ray_documented` on a Ray of its own."""
    run_module(
        "observability.benchmarks.ray_documented",
        str(_written(settings, folder)),
        str(folder),
        RAY_AUTH_MODE="disabled",
    )


def _task(settings: TrainingSettings, folder: Path) -> Path:
    file = folder / "task.json"
    file.write_text(json.dumps(RankTask(settings=settings, run_directory=folder, attempt=0).dump()), encoding="utf-8")
    return file


def _written(settings: TrainingSettings, folder: Path) -> Path:
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json(), encoding="utf-8")
    return file


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
