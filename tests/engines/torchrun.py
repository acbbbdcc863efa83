"""Runs under torchrun: real local agents and ranks, started as the driver starts them."""

from __future__ import annotations

from pathlib import Path

from tests.engines.report_table import ran
from training.config.schema import TrainingSettings
from training.launch.local import ProcessLauncher
from training.launch.task import Outcome, RankTask


def run_under_torchrun(settings: TrainingSettings, folder: Path, *, attempt: int = 0) -> Outcome:
    """Run one attempt of a run with the launcher torchrun in the run directory `folder`.

    Raises:
        WorkersFailedError: a rank failed or died.
    """
    assert settings.scale.launcher == "torchrun"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = ProcessLauncher().launch(
        RankTask(settings=settings, run_directory=folder, attempt=attempt), on_phase=lambda _: None
    )
    ran("torchrun")
    return outcome
