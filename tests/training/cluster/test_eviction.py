"""A job that Kueue evicts, on the driver's side: a real driver, and the head's real preStop script."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from observability.runlog import RunEnded, read_all, select
from platform_charts.jobs.drain import drain_head
from tests.training.cli.command import ROOT
from tests.training.cluster.team_cluster import objects
from tests.training.runs import small_settings
from tests.waiting import wait_until
from training.checkpoint.store import committed_steps
from training.config.load import render
from training.errors import ExitStatus

pytestmark = pytest.mark.extended


def test_the_prestop_hook_of_an_evicted_job_ends_its_driver_which_saves(tmp_path: Path) -> None:
    run, settings = tmp_path / "runs" / "digits", tmp_path / "settings.yaml"
    settings.write_text(render(small_settings(loop={"epochs": 500}, run={"directory": run.parent})))
    (job,) = [one for one in objects("digits") if one["kind"] == "RayJob"]
    _, *words = shlex.split(job["spec"]["entrypoint"])
    command = [sys.executable, *(str(settings) if word == "/etc/training/settings.yaml" else word for word in words)]
    script = drain_head(str(run), grace_seconds=75)
    assert script is not None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as driver:
        try:
            wait_until(lambda: bool(list(committed_steps(run / "checkpoints"))), seconds=90)
            subprocess.run(["/bin/bash", "-c", script], check=True, timeout=90)
            assert driver.wait(timeout=90) == ExitStatus.INTERRUPTED
        finally:
            driver.kill()
    (end,) = select(read_all(run), RunEnded)
    assert (end.status, end.step) == ("interrupted", max(committed_steps(run / "checkpoints")))
