"""What becomes of the ranks' processes when a trial fails: those that can train another one stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ray.util.placement_group import PlacementGroup, placement_group

from tests.distribution import RAY
from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran
from tests.training.launch.driver import PATIENCE
from tests.training.runs import small_settings
from training.config.schema import TrainingSettings
from training.launch.ray_cluster import RayCluster
from training.launch.task import RankTask, WorkersFailedError
from tune.trial import launcher as trial_launcher
from tune.trial import ranks as trial_ranks
from tune.trial.launcher import GroupLauncher
from tune.trial.ranks import RankGroup

pytestmark = [pytest.mark.extended, pytest.mark.xdist_group(RAY)]

WORKERS = 2
EPOCHS = 2


@pytest.fixture(scope="module")
def bundles() -> Iterator[PlacementGroup]:
    """The placement group of a trial, on a cluster of its own."""
    with short_folder() as folder:
        cluster = RayCluster(address=None, cpus=WORKERS + 1, gpus=0, start_timeout=PATIENCE, scratch=folder)
        cluster.start(imports="tune.trial.launcher")
        try:
            group = placement_group([{"CPU": 0.0001}, *[{"CPU": 1.0}] * WORKERS], strategy="PACK")
            assert group.wait(PATIENCE)
            ran("Ray cluster")
            yield group
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def launcher(bundles: PlacementGroup) -> Iterator[GroupLauncher]:
    """A launcher whose ranks have trained a trial already."""
    ranks = RankGroup(bundles, settings_of("none", rank=0, trace=Path()).scale, gpus_per_worker=0, is_local=True)
    launcher = GroupLauncher(ranks)
    launcher.allow(EPOCHS)
    yield launcher
    launcher.close()


def settings_of(fault: str, *, rank: int, trace: Path) -> TrainingSettings:
    """A trial whose rank `rank` has a fault in its third step; `none` has none."""
    faulty = {
        "name": f"tests.training.faults.models:{fault}",
        "options": {"step": 3, "rank": rank, "trace": str(trace)},
    }
    return small_settings(
        model={"name": "simple_cnn"} if fault == "none" else faulty,
        loop={"epochs": EPOCHS},
        scale={"launcher": "ray", "workers": WORKERS},
    )


def launch(launcher: GroupLauncher, folder: Path, fault: str, *, rank: int = 0) -> None:
    """Train a trial to its end."""
    folder.mkdir()
    settings = settings_of(fault, rank=rank, trace=folder / "trace")
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    assert launcher.launch(task, on_phase=lambda _: None).status == "done"


def processes() -> set[int]:
    """Process ids of the ranks, whose title Ray sets."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::Rank"):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def test_the_next_trial_of_a_failed_one_finds_all_processes_that_can_train_it(
    launcher: GroupLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank fails while its peer waits for it in a collective: by an error, by its exit, or by its death."""
    # Which processes stay is the question, and not how soon a busy machine lets them answer.
    monkeypatch.setattr(trial_launcher, "_PEERS_SECONDS", PATIENCE)
    monkeypatch.setattr(trial_ranks, "_ANSWER_SECONDS", PATIENCE)
    launch(launcher, tmp_path / "first", "none")
    before = processes()
    assert len(before) == WORKERS
    for fault, lost in (("raising", 0), ("leaving", 0), ("killed", 1)):
        with pytest.raises(WorkersFailedError) as failed:
            launch(launcher, tmp_path / fault, fault, rank=1)
        assert set(failed.value.exits) == ({1} if lost else set()), fault
        launch(launcher, tmp_path / f"after {fault}", "none")
        after = processes()
        assert (len(after), len(before - after)) == (WORKERS, lost), fault
        before = after
