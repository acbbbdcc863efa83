"""A job that Kueue evicts, on the driver's side: a real driver, and the head's real preStop script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from observability.runlog import Restored, RunEnded, TrainingStarted, read_all, select
from platform_charts.jobs.drain import drain_head
from tests.training.cli.command import ROOT
from tests.training.cluster.team_cluster import objects, wait_until
from tests.training.runs import small_settings
from training.checkpoint.store import committed_steps
from training.config.load import render
from training.errors import ExitStatus

NAME = "digits"


class Job:
    """A job's entrypoint, run as on the head, with files of this machine."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "settings.yaml"
        long = small_settings(loop={"epochs": 500}, run={"directory": folder / "runs"})
        settings.write_text(render(long))
        (job,) = [one for one in objects(NAME) if one["kind"] == "RayJob"]
        program, *words = shlex.split(job["spec"]["entrypoint"])
        assert program == "python"
        mounted = {"/etc/training/settings.yaml": str(settings)}
        self._command = [sys.executable, *(mounted.get(word, word) for word in words)]
        self.run = folder / "runs" / NAME

    def is_evicted_after_its_next_checkpoint(self) -> int:
        """Start the job, and end its head as the kubelet does: preStop first. Returns the driver's exit status."""
        before = max(self.committed, default=0)
        script = drain_head(str(self.run), grace_seconds=75)
        assert script is not None
        with subprocess.Popen(self._command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL) as driver:
            try:
                wait_until(lambda: max(self.committed, default=0) > before, seconds=90)
                subprocess.run(["/bin/bash", "-c", script], check=True, timeout=90)
                return driver.wait(timeout=90)
            finally:
                driver.kill()

    @property
    def committed(self) -> list[int]:
        """Steps of the committed checkpoints."""
        return list(committed_steps(self.run / "checkpoints"))


def test_an_evicted_job_resumes_from_the_state_that_its_prestop_hook_saved(tmp_path: Path) -> None:
    job = Job(tmp_path)
    ends, saved = [], []
    for _ in range(2):
        ends.append(job.is_evicted_after_its_next_checkpoint())
        saved.append(max(job.committed))
    events = read_all(job.run)
    assert ends == [ExitStatus.INTERRUPTED] * 2
    assert saved == sorted(set(saved))
    assert [event.step for event in select(events, Restored)] == saved[:1]
    assert [event.start_step for event in select(events, TrainingStarted)] == [0, saved[0]]
    assert [event.step for event in select(events, RunEnded)] == saved
