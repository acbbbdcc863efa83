"""A killed rank is replaced; an exception in a rank ends the run with its traceback. Real launchers and signals."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from observability.progress import ProgressView
from observability.runlog import Notice, Restored, RunEnded, TrainingStarted, read_all, select
from tests.engines import report_table
from tests.engines.ray_cluster import RayCluster, ray_cluster
from tests.training.launch.driver import arguments_for
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training import supervisor
from training.callbacks import sample_ledger as ledger
from training.cli import main
from training.config.schema import TrainingSettings
from training.errors import TrainingFailedError
from training.launch.task import Outcome
from training.rundir import RunDirectory
from training.supervisor import Supervisor

__all__ = ["ray_cluster"]  # fixture

FAILURE_STEP = 13
"""Step of an attempt; checkpoints are due every 5 steps."""


def settings(fault: str, root: Path, *, launcher: str, max_restarts: int = 2) -> TrainingSettings:
    """Two ranks; the second fails once, after the first checkpoint of the run `root/runs/run`."""
    options = {"step": FAILURE_STEP, "rank": 1, "trace": str(root / "failed"), "run": str(root / "runs" / "run")}
    return small_settings(
        model={"name": f"tests.training.faults.models:{fault}", "options": options},
        loop={"log_sample_ids": True},
        scale={"launcher": launcher, "workers": 2, "max_restarts": max_restarts},
    )


def supervise_on(cluster: RayCluster, chosen: TrainingSettings, root: Path, patch: pytest.MonkeyPatch) -> Outcome:
    """Drive the run `root/runs/run` on the Ray cluster of the tests."""
    patch.setattr(supervisor, "make_launcher", lambda *_, **__: cluster)
    run = RunDirectory(root / "runs" / "run")
    run.path.mkdir(parents=True)
    with run.driving():
        view = ProgressView(stream=io.StringIO(), is_terminal=False)
        return Supervisor(chosen, run, view=view).run()


def assert_recovered(root: Path, notice: str) -> None:
    """The run restarted once, from a checkpoint before the failure, and ended in the weights of a run without it."""
    run = root / "runs" / "run"
    events = read_all(run)
    restarts = [event.message for event in select(events, Notice) if "restart" in event.message]
    assert restarts == [f"{notice}; restarting from the newest checkpoint (restart 1 of 2)"]
    (restored,) = [event.step for event in select(events, Restored)]
    assert [event.start_step for event in select(events, TrainingStarted)] == [0, restored]
    assert restored in (5, 10)
    reference = root / "reference"
    reference.mkdir()
    (reference / "failed").touch()
    uninterrupted = run_world(settings("killed", reference, launcher="torchrun"), reference / "runs" / "run")
    assert select(events, RunEnded)[-1].weights_sha256 == uninterrupted.weights_sha256
    assert ledger.consumed_ids(run) == {1: list(range(1293)), 2: list(range(1293))}


def test_a_rank_killed_under_torchrun_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    arguments = arguments_for(settings("killed", tmp_path, launcher="torchrun"), tmp_path)
    assert main(arguments) == 0
    report_table.ran("torchrun")
    assert_recovered(tmp_path, "rank 1 was killed by SIGKILL")


def test_a_rank_killed_under_ray_is_replaced_and_nothing_is_lost(
    tmp_path: Path, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings("killed", tmp_path, launcher="ray")
    supervise_on(ray_cluster, chosen, tmp_path, monkeypatch)
    assert_recovered(tmp_path, "rank 1 died without reporting an error")


def test_without_restarts_the_killed_rank_is_named_with_a_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = settings("killed", tmp_path, launcher="torchrun", max_restarts=0)
    assert main(arguments_for(chosen, tmp_path)) == 1
    error = capfd.readouterr().err
    assert error.startswith("error: rank 1 was killed by SIGKILL\n  remedy: ")
    assert "memory" in error
    assert len(select(read_all(tmp_path / "runs" / "run"), TrainingStarted)) == 1


def test_an_exception_under_ray_ends_the_run_with_its_traceback_only(
    tmp_path: Path, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings("raising", tmp_path, launcher="ray")
    with pytest.raises(TrainingFailedError) as raised:
        supervise_on(ray_cluster, chosen, tmp_path, monkeypatch)
    text = str(raised.value)
    assert text.startswith("Traceback (most recent call last):")
    assert "tests/training/faults/models.py" in text
    assert "\nrank 1 failed: RuntimeError: raised by the model\n  remedy: " in text
    assert "make resume NAME=" in text
    assert "site-packages/ray" not in text
    assert "RayTaskError" not in text
    events = read_all(tmp_path / "runs" / "run")
    assert len(select(events, TrainingStarted)) == 1
    assert select(events, RunEnded)[-1].status == "failed"


def test_a_non_finite_step_ends_the_command_with_its_number_and_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    blowing_up = small_settings(optimizer={"name": "sgd", "learning_rate": 1e30}, loop={"clip_norm": None})
    assert main(arguments_for(blowing_up, tmp_path)) == 1
    error = capfd.readouterr().err
    assert error.startswith("error: step 2: the gradient is not finite")
    assert "optimizer.learning_rate" in error
    assert "Traceback" not in error
