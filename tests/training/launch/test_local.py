"""The launchers `plain` and `torchrun`: ranks that end early, and what is said of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import run_command
from tests.training.launch.driver import ROOT
from tests.training.runs import small_settings
from training.config.schema import ScaleSettings
from training.launch.local import ProcessLauncher, rank_command
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask, WorkersFailedError

FAULTS = "tests.training.faults.models"


def test_torchrun_selects_a_port_on_one_machine_and_gets_the_rendezvous_of_several(tmp_path: Path) -> None:
    here = rank_command(ScaleSettings(launcher="torchrun", workers=4), tmp_path)
    assert {"--standalone", "--nproc-per-node=4"} <= {*here}
    assert not any(word.startswith("--master") for word in here)
    scale = ScaleSettings(launcher="torchrun", workers=8, nodes=2, node_rank=1, rendezvous="head.example:29400")
    several = rank_command(scale, tmp_path)
    assert {"--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--max-restarts=0"} <= {*several}
    assert {"--master-addr=head.example", "--master-port=29400"} <= {*several}


def launch(folder: Path, launcher: str, model: str, *, workers: int, **options: int) -> None:
    settings = small_settings(
        model={
            "name": f"{FAULTS}:{model}",
            "options": {"step": 2, "rank": workers - 1, "trace": str(folder / "trace"), **options},
        },
        scale={"launcher": launcher, "workers": workers},
    )
    ProcessLauncher().launch(RankTask(settings=settings, run_directory=folder, attempt=0), on_phase=lambda _: None)


@pytest.mark.extended
@pytest.mark.parametrize(("model", "status"), [("killed", -9), ("exiting", 3)])
def test_a_rank_that_ends_early_is_a_failure_with_its_exit_status(tmp_path: Path, model: str, status: int) -> None:
    with pytest.raises(WorkersFailedError) as raised:
        launch(tmp_path, "plain", model, workers=1, **({"code": status} if model == "exiting" else {}))
    assert raised.value.exits == {0: status}


@pytest.mark.extended
@pytest.mark.parametrize(("launcher", "workers"), [("plain", 1), ("torchrun", 2)])
def test_a_crash_of_a_rank_that_has_finished_changes_nothing_and_leaves_no_folder(
    tmp_path: Path, launcher: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    trace = tmp_path / "trace"
    settings = small_settings(
        model={"name": f"{FAULTS}:aborting_at_exit", "options": {"trace": str(trace)}},
        scale={"launcher": launcher, "workers": workers},
    )
    task = RankTask(settings=settings, run_directory=tmp_path, attempt=0)
    outcome = ProcessLauncher().launch(task, on_phase=lambda _: None)
    assert outcome.status == "done"
    assert trace.exists()
    assert list(temporary.glob("torchelastic_*")) == []


def test_the_output_of_a_rank_that_cannot_start_is_in_the_error(tmp_path: Path) -> None:
    """The rank cannot record its failure, because its log file is a folder."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank-0.jsonl").mkdir()
    with pytest.raises(WorkersFailedError, match="workers exited with status 1") as raised:
        launch(tmp_path, "plain", "killed", workers=1)
    assert "IsADirectoryError" in str(raised.value)


def test_a_rank_exits_if_its_driver_died_during_the_start(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG sends no signal for a parent that has already died."""
    driver = subprocess.Popen(["true"])
    driver.wait()
    assert not psutil.pid_exists(driver.pid)
    command = [sys.executable, "-m", "training.launch.rank", str(tmp_path / "task.json")]
    environment = {"PYTHONPATH": str(ROOT), DRIVER_VARIABLE: str(driver.pid)}
    rank = run_command(command, cwd=ROOT, env=environment, seconds=60)
    assert rank.returncode == 1
    assert rank.stderr == f"the driver (process {driver.pid}) has exited\n"
