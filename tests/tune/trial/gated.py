"""Trials without Ray: rank 0 in a thread of this process, at a real gate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.training.runs import ALONE, small_settings
from training.config.schema import TrainingSettings
from training.launch.task import Outcome, RankTask, unheard
from training.rundir import RunDirectory
from training.worker import run_rank
from tune.trial.gate import Gate
from tune.trial.run import TrialRun

EPOCHS = 4


class GatedAlone:
    """Runs a world of one in the thread that launches it."""

    def __init__(self, *, patience: float = 60.0) -> None:
        self._patience = patience
        self._until_epoch = 0
        self._gate: Gate | None = None
        self.launches = 0

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        del on_phase, notify
        self.launches += 1
        stop = RunDirectory(task.run_directory).stop_is_requested
        self._gate = Gate(until_epoch=self._until_epoch, is_stop_requested=stop, patience=self._patience)
        return run_rank(task, ALONE, gate=self._gate)

    def allow(self, until_epoch: int) -> None:
        self._until_epoch = until_epoch
        if self._gate is not None:
            self._gate.open(until_epoch=until_epoch)

    def close(self) -> None:
        """Nothing outlives an attempt."""


def trial_settings(root: Path, name: str = "t001", **sections: dict[str, Any]) -> TrainingSettings:
    """The settings of a trial of a few short epochs."""
    base: dict[str, dict[str, Any]] = {
        "run": {"name": name, "directory": root},
        "loop": {"epochs": EPOCHS},
        "checkpoint": {"every_steps": 1000, "after_evaluation": "every", "keep_last": 2},
    }
    for section, values in sections.items():
        base[section] = {**base.get(section, {}), **values}
    return small_settings(**base)


def trial_of(settings: TrainingSettings, launcher: GatedAlone, **known: Any) -> TrialRun:  # noqa: ANN401 - passed through
    """The trial of these settings, whose folder is made."""
    run = RunDirectory.create(settings, now=datetime.now().astimezone())
    return TrialRun(run, settings, launcher=launcher, **known)
