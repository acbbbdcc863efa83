"""Ranks as processes: the command that starts them, and what is said of them when they die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.training.launch.driver import ROOT
from tests.training.runs import small_settings
from training.config.schema import ScaleSettings
from training.launch.local import ProcessLauncher, command
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask, WorkersFailedError

FAULTS = "tests.training.faults.models"


def test_a_plain_run_is_one_process_of_this_python(tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    scale = ScaleSettings(launcher="plain", workers=1)
    assert command(scale, task) == [sys.executable, "-m", "training.launch.rank", str(task)]


def test_torchrun_on_one_machine_finds_its_own_port(tmp_path: Path) -> None:
    words = command(ScaleSettings(launcher="torchrun", workers=4), tmp_path)
    assert "--standalone" in words
    assert "--nproc-per-node=4" in words
    assert not any(word.startswith("--master") for word in words)


def test_torchrun_on_several_machines_spreads_the_workers_and_meets_where_it_is_told(tmp_path: Path) -> None:
    scale = ScaleSettings(launcher="torchrun", workers=8, nodes=2, node_rank=1, rendezvous="head.example:29400")
    words = command(scale, tmp_path)
    for word in (
        "--nnodes=2",
        "--node-rank=1",
        "--master-addr=head.example",
        "--master-port=29400",
        "--nproc-per-node=4",
        "--max-restarts=0",
    ):
        assert word in words


def launch(folder: Path, launcher: str, model: str, *, workers: int) -> None:
    settings = small_settings(
        model={
            "name": f"{FAULTS}:{model}",
            "options": {"step": 2, "rank": workers - 1, "trace": str(folder / "trace")},
        },
        scale={"launcher": launcher, "workers": workers},
    )
    ProcessLauncher().launch(RankTask(settings=settings, run_directory=folder, attempt=0), on_phase=lambda _: None)


def test_a_plain_process_that_is_killed_is_named_with_the_signal(tmp_path: Path) -> None:
    with pytest.raises(WorkersFailedError, match=r"^rank 0 was killed by SIGKILL$"):
        launch(tmp_path, "plain", "killed", workers=1)


def test_what_was_printed_last_is_told_where_a_rank_could_not_even_start(tmp_path: Path) -> None:
    """Its own record needs the run's folder for the logs, and a file is in its place."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank-0.jsonl").mkdir()
    with pytest.raises(WorkersFailedError, match="workers ended with status 1") as caught:
        launch(tmp_path, "plain", "killed", workers=1)
    assert "IsADirectoryError" in str(caught.value)


def test_a_rank_whose_driver_died_while_it_started_ends_at_once(tmp_path: Path) -> None:
    """The kernel is asked to end a rank with its parent, but tells of no death before that."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not psutil.pid_exists(gone.pid)
    rank = subprocess.run(
        [sys.executable, "-m", "training.launch.rank", str(tmp_path / "task.json")],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), DRIVER_VARIABLE: str(gone.pid)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert rank.returncode == 1
    assert rank.stderr == f"the driver, process {gone.pid}, is gone\n"
