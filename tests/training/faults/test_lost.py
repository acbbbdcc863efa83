"""Runs that lose their folder, the reader of their output, or their terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from observability.runlog import CheckpointCommitted, Notice, RunEnded, RunLogReader, read_all, select
from tests.observability.sample_run import restarted_run, write_run
from tests.training.launch.driver import ROOT, arguments_for, is_commit, train
from tests.training.launch.terminal import on_terminal
from tests.training.runs import small_settings
from training.checkpoint.store import FOLDER
from training.tracking.state import TrackingState


def delete(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)  # the ranks may write files meanwhile


def move(run: Path) -> None:
    run.rename(run.with_name("moved"))


def replace(run: Path) -> None:
    move(run)
    # Without checkpoints, whose writer may have made the folder again and renames files in it.
    ignore = shutil.ignore_patterns(FOLDER)
    shutil.copytree(run.with_name("moved"), run, ignore=ignore, dirs_exist_ok=True)


@pytest.mark.extended
@pytest.mark.parametrize(("launcher", "lose"), [("plain", replace), ("plain", delete), ("torchrun", move)])
def test_a_run_without_its_folder_fails_with_no_summary(
    tmp_path: Path, launcher: str, lose: Callable[[Path], None]
) -> None:
    chosen = small_settings(loop={"epochs": 60}, schedule={"name": "constant"}, scale={"launcher": launcher})
    with train(chosen, tmp_path) as driver:
        assert driver.wait_for(is_commit)
        lose(driver.run)
        ended = driver.end()
        driver.wait_for_descendants()
    assert ended.status == 1, ended.out
    assert ended.err.startswith(f"error: {driver.run}: the run's folder was deleted, moved or replaced")
    assert "remedy: " in ended.err
    assert "Traceback" not in ended.err
    assert "report" not in ended.out
    assert "done after" not in ended.out


@pytest.mark.extended
def test_a_run_under_nohup_whose_output_nobody_reads_ends_well_and_is_delivered(tmp_path: Path) -> None:
    """As in `nohup make train | head -1`."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    MlflowClient(tracking_uri=uri).create_experiment("lost-viewer", artifact_location=str(tmp_path / "artifacts"))
    chosen = small_settings(tracking={"enabled": True, "uri": uri, "experiment": "lost-viewer"})
    with train(chosen, tmp_path, prefix=["nohup"]) as driver:
        assert driver.process.stdout is not None
        assert driver.process.stdout.readline().startswith("run run:")
        driver.process.stdout.close()
        driver.process.stdout = None
        assert driver.wait_for(is_commit)
        driver.process.send_signal(signal.SIGHUP)
        ended = driver.end()
    assert (ended.status, ended.err) == (0, "")
    assert select(read_all(driver.run), RunEnded)[-1].status == "done"
    assert (driver.run / "report.html").exists()
    state = TrackingState.load(driver.run)
    assert state is not None
    assert state.status == "FINISHED"


@pytest.mark.extended
def test_a_closed_terminal_commits_a_checkpoint_and_stops_the_run(tmp_path: Path) -> None:
    chosen = small_settings(loop={"epochs": 200}, schedule={"name": "constant"})
    run = tmp_path / "runs" / "run"
    command = [sys.executable, "-m", "training", *arguments_for(chosen, tmp_path)]
    with on_terminal(command, folder=ROOT) as terminal:
        new_events = RunLogReader(run)
        terminal.wait_until(lambda: any(map(is_commit, new_events.read_new())))
        terminal.close()
        # As a shell does. The kernel has sent one already; the second must not end the run before it commits.
        os.killpg(terminal.process.pid, signal.SIGHUP)
        assert terminal.end() == 130
    events = read_all(run)
    assert [notice.message.partition(":")[0] for notice in select(events, Notice)].count("SIGHUP") == 1
    end = select(events, RunEnded)[-1]
    assert (end.status, end.step) == ("interrupted", select(events, CheckpointCommitted)[-1].step)
    assert end.message == ""


def test_every_encoding_of_the_output_can_show_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run", restarted_run())
    (tmp_path / "run" / "settings.yaml").touch()
    for encoding in ("ascii", "latin-1"):
        shown = subprocess.run(
            [sys.executable, "-m", "training", "monitor", "run", "--root", str(tmp_path), "--once"],
            cwd=ROOT,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (shown.returncode, shown.stderr.decode()) == (0, "")
        text = shown.stdout.decode(encoding)
        assert "230/230" in text
        assert "?" not in text, encoding
