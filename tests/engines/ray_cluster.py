"""A local Ray cluster, started once per test module by the driver's launcher."""

from __future__ import annotations

import os
import subprocess
import sys
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


def run_program(module: str, *arguments: str, metrics_interval: int) -> str:
    """Run a module that starts Ray in a folder, its first argument, to its end; returns its output.

    Args:
        module: to run as `python -m`.
        arguments: after the folder.
        metrics_interval: milliseconds between two reports of metrics to Ray's agent.
    """
    environment = {
        **os.environ,
        "RAY_raylet_start_wait_time_s": "120",  # 30 by default, which a busy machine exceeds
        "RAY_metrics_report_interval_ms": str(metrics_interval),
    }
    with short_folder() as folder:
        program = [sys.executable, "-m", module, str(folder), *arguments]
        ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    ran("Ray cluster")
    return ended.stdout


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
