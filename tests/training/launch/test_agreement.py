"""All launchers train the same: equal weights for equal seed and world size, and each sample once per epoch."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from observability.runlog import Evaluated, TrainingStarted, read_all, select
from tests.engines.ray_cluster import RayCluster, ray_cluster
from tests.engines.report_table import ran
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings
from training.launch.local import ProcessLauncher
from training.launch.task import Outcome, RankTask

__all__ = ["ray_cluster"]  # fixture

LauncherName = Literal["plain", "torchrun", "ray"]
EVERY_DIGIT = list(range(1293))


def settings(launcher: LauncherName, workers: int, *, loader_workers: int = 0) -> TrainingSettings:
    """Two epochs with dropout and augmentation; the global batch does not divide the 1293 samples."""
    return small_settings(
        loop={"global_batch": 56, "log_sample_ids": True},
        scale={"launcher": launcher, "workers": workers},
        data={"loader_workers": loader_workers},
    )


def launched(chosen: TrainingSettings, folder: Path) -> Outcome:
    """Run one attempt by local processes: one, or torchrun's agent with ranks."""
    folder.mkdir()
    task = RankTask(settings=chosen, run_directory=folder, attempt=0)
    return ProcessLauncher().launch(task, on_phase=lambda _: None)


def evaluations(folder: Path) -> list[tuple[str, int, float, float]]:
    """Split, step, loss and accuracy of each evaluation in a run's log."""
    return [
        (found.split, found.step, found.loss, found.metrics["accuracy"])
        for found in select(read_all(folder), Evaluated)
    ]


@dataclass(frozen=True)
class Reference:
    """A run of two ranks without a launcher."""

    outcome: Outcome
    folder: Path


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The run that those with launchers equal."""
    folder = tmp_path_factory.mktemp("reference")
    return Reference(run_world(settings("torchrun", 2), folder), folder)


def assert_same_run(outcome: Outcome, folder: Path, expected: Reference, *, workers: int = 2) -> None:
    """A run ended in the weights and metrics of the reference, and read each sample once per epoch."""
    assert outcome == expected.outcome
    assert (outcome.status, len(outcome.weights_sha256)) == ("done", 64)
    assert evaluations(folder) == evaluations(expected.folder)
    assert ledger.consumed_ids(folder) == {1: EVERY_DIGIT, 2: EVERY_DIGIT}
    assert select(read_all(folder), TrainingStarted)[0].world == workers


@pytest.mark.extended
def test_a_plain_process_trains_like_a_single_rank(tmp_path: Path) -> None:
    alone = Reference(run_alone(settings("plain", 1), tmp_path / "reference"), tmp_path / "reference")
    assert_same_run(launched(settings("plain", 1), tmp_path / "plain"), tmp_path / "plain", alone, workers=1)


def test_torchrun_trains_like_ranks_alone(tmp_path: Path, reference: Reference) -> None:
    folder = tmp_path / "run"
    assert_same_run(launched(settings("torchrun", 2), folder), folder, reference)
    ran("torchrun")


def test_ray_with_loaders_trains_like_ranks_alone(
    tmp_path: Path, ray_cluster: RayCluster, reference: Reference
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert_same_run(ray_cluster.run(settings("ray", 2, loader_workers=2), tmp_path), tmp_path, reference)
    # The handler of `ray.init` would exit with status 15 without saving.
    assert signal.getsignal(signal.SIGTERM) is before
