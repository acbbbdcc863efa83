"""All launchers train the same: equal weights for equal seed and world size, and each sample once per epoch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from observability.runlog import Evaluated, TrainingStarted, read_all, select
from tests.engines.ray_cluster import RayCluster, ray_cluster
from tests.engines.torchrun import run_under_torchrun
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings
from training.launch.local import ProcessLauncher
from training.launch.task import Outcome, RankTask

__all__ = ["ray_cluster"]  # fixture

LauncherName = Literal["plain", "torchrun", "ray"]
Run = Callable[[TrainingSettings, Path], Outcome]

EVERY_DIGIT = list(range(1293))


def settings(
    launcher: LauncherName, workers: int, *, accumulation: int = 1, loader_workers: int = 0
) -> TrainingSettings:
    """Two epochs with dropout and augmentation; the global batch does not divide the 1293 samples."""
    return small_settings(
        loop={"global_batch": 56, "accumulation": accumulation, "log_sample_ids": True},
        scale={"launcher": launcher, "workers": workers},
        data={"loader_workers": loader_workers},
    )


def run_plain(chosen: TrainingSettings, folder: Path) -> Outcome:
    folder.mkdir()
    task = RankTask(settings=chosen, run_directory=folder, attempt=0)
    return ProcessLauncher().launch(task, on_phase=lambda _: None)


def evaluations(folder: Path) -> list[tuple[str, int, float, float]]:
    """Split, step, loss and accuracy of each evaluation in a run's log."""
    return [
        (found.split, found.step, found.loss, found.metrics["accuracy"])
        for found in select(read_all(folder), Evaluated)
    ]


def assert_same_run(run: Run, launcher: LauncherName, workers: int, folder: Path, *, accumulation: int = 1) -> None:
    """A run with the launcher ends in the weights and metrics of one without it, and reads each sample once per epoch."""
    outcome = run(settings(launcher, workers, accumulation=accumulation), folder / launcher)
    reference = (run_alone if workers == 1 else run_world)(
        settings(launcher, workers, accumulation=accumulation), folder / "reference"
    )
    assert outcome == reference
    assert outcome.status == "done"
    assert len(outcome.weights_sha256) == 64
    assert evaluations(folder / launcher) == evaluations(folder / "reference")
    assert ledger.consumed_ids(folder / launcher) == {1: EVERY_DIGIT, 2: EVERY_DIGIT}
    assert select(read_all(folder / launcher), TrainingStarted)[0].world == workers


WORKERS = [pytest.param(1, 1, marks=pytest.mark.long), (2, 1), pytest.param(4, 2, marks=pytest.mark.long)]


def test_a_plain_process_trains_like_a_single_rank(tmp_path: Path) -> None:
    assert_same_run(run_plain, "plain", 1, tmp_path)


@pytest.mark.parametrize(("workers", "accumulation"), WORKERS)
def test_torchrun_trains_like_ranks_without_a_launcher(tmp_path: Path, workers: int, accumulation: int) -> None:
    assert_same_run(run_under_torchrun, "torchrun", workers, tmp_path, accumulation=accumulation)


@pytest.mark.parametrize(("workers", "accumulation"), WORKERS)
def test_ray_trains_like_ranks_without_a_launcher(
    tmp_path: Path, ray_cluster: RayCluster, workers: int, accumulation: int
) -> None:
    assert_same_run(ray_cluster.run, "ray", workers, tmp_path, accumulation=accumulation)


def test_loader_workers_under_ray_do_not_change_the_weights(tmp_path: Path, ray_cluster: RayCluster) -> None:
    with_loaders = ray_cluster.run(settings("ray", 2, loader_workers=2), tmp_path / "loaders")
    assert with_loaders == run_world(settings("ray", 2), tmp_path / "reference")
    assert ledger.consumed_ids(tmp_path / "loaders") == {1: EVERY_DIGIT, 2: EVERY_DIGIT}


def test_ray_does_not_replace_the_sigterm_handler(tmp_path: Path, ray_cluster: RayCluster) -> None:
    """The handler of `ray.init` would exit with status 15 without saving."""
    ray_cluster.run(small_settings(scale={"launcher": "ray", "workers": 1}, loop={"max_steps": 1}), tmp_path / "run")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
