"""A local Ray cluster, started once per test module by the driver's launcher."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.report_table import ran
from training.config.schema import ScaleSettings, TrainingSettings
from training.launch.ray_train import RayLauncher
from training.launch.task import Outcome, RankTask, unheard

SLOTS = 4
"""CPUs that the cluster reports, and so the maximum world size; on a machine with fewer, the tests are slower."""


class RayCluster:
    """A launcher that keeps its cluster for several runs."""

    def __init__(self, launcher: RayLauncher) -> None:
        self._launcher = launcher

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        """Run an attempt, as a `Launcher` does.

        Raises:
            WorkersFailedError: a rank failed or died.
        """
        try:
            return self._launcher.launch(task, on_phase=on_phase, notify=notify)
        finally:
            ran("Ray cluster")

    def close(self) -> None:
        """Keep the cluster for the next run."""

    def run(self, settings: TrainingSettings, folder: Path) -> Outcome:
        """Run the first attempt of a run in `folder`.

        Raises:
            WorkersFailedError: a rank failed or died.
        """
        folder.mkdir(parents=True, exist_ok=True)
        return self.launch(RankTask(settings=settings, run_directory=folder, attempt=0), on_phase=lambda _: None)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with a path short enough for Ray's sockets, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="rtp-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster of a test module; Ray starts with the first run."""
    with short_folder() as scratch:
        launcher = RayLauncher(ScaleSettings(workers=SLOTS), scratch=scratch)
        try:
            yield RayCluster(launcher)
        finally:
            launcher.close()
