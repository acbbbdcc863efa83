"""Small real runs for tests: settings, and a rank run in this process or in a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from observability.runlog import Step, read_all, select
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankPlace, RankTask
from training.worker import run_rank

ALONE = RankPlace(rank=0, world=1, local_rank=0, local_world=1, master_address="127.0.0.1", master_port=0)


def small_settings(**sections: dict[str, Any]) -> TrainingSettings:
    """One process, two epochs of digits, no MLflow and no metrics; `sections` override that key by key."""
    base: dict[str, dict[str, Any]] = {
        "loop": {"epochs": 2},
        "scale": {"launcher": "plain", "workers": 1},
        "tracking": {"enabled": False},
        "metrics": {"exporter": "none"},
        "checkpoint": {"every_steps": 5},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section}
    return TrainingSettings.model_validate(base)


def run_alone(settings: TrainingSettings, folder: Path, *, attempt: int = 0) -> Outcome:
    """Run a world of one in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    return run_rank(RankTask(settings=settings, run_directory=folder, attempt=attempt), ALONE)


def steps_of(folder: Path) -> list[Step]:
    """The steps in a run's log."""
    return select(read_all(folder), Step)
