"""A killed rank is replaced; an exception in a rank ends the run with its traceback. Real launchers and signals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from observability.runlog import Notice, Restored, RunEnded, TrainingStarted, read_all, select
from tests.engines import report_table
from tests.engines.ray_cluster import RayCluster, ray_cluster
from tests.training.launch.driver import arguments_for
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings, supervised
from training import supervisor
from training.callbacks import sample_ledger as ledger
from training.cli import main
from training.config.schema import TrainingSettings
from training.errors import TrainingFailedError
from training.launch.task import Outcome
from training.postmortem import case_of
from training.rundir import RunDirectory

pytestmark = pytest.mark.extended

__all__ = ["ray_cluster"]  # fixture

MODELS = "tests.training.faults.models:"
FAILURE_STEP = 13
"""Step of an attempt; checkpoints are due every 5 steps."""


def settings(fault: str, root: Path, *, launcher: str, stages: int = 1) -> TrainingSettings:
    """Two ranks, or a pipeline of two `stages`; the second fails once, after the first checkpoint of the run `root/runs/run`."""
    options = {"step": FAILURE_STEP, "rank": 1, "trace": str(root / "failed"), "run": str(root / "runs" / "run")}
    return small_settings(
        model={"name": MODELS + fault, "options": options},
        loop={"log_sample_ids": True, "accumulation": stages},
        strategy={"name": "pipeline", "stages": stages} if stages > 1 else {},
        scale={"launcher": launcher, "workers": 2, "max_restarts": 2},
    )


def supervise_on(cluster: RayCluster, chosen: TrainingSettings, root: Path, patch: pytest.MonkeyPatch) -> Outcome:
    """Drive the run `root/runs/run` on the Ray cluster of the tests."""
    patch.setattr(supervisor, "make_launcher", lambda *_, **__: cluster)
    run = RunDirectory(root / "runs" / "run")
    run.path.mkdir(parents=True)
    return supervised(chosen, run)


def assert_recovered(root: Path, notice: str, *, stages: int = 1) -> None:
    """The run restarted once, from a checkpoint before the failure, and lost nothing.

    The notice may also name the place: Ray may terminate the ranks of a lost worker before the kernel kills them.
    """
    run = root / "runs" / "run"
    events = read_all(run)
    restarts = [event.message for event in select(events, Notice) if "restart" in event.message]
    restarts = [re.sub(r", at \S+ in fail;", ";", message) for message in restarts]
    assert restarts == [f"{notice}; restarting (restart 1 of 2 for lost processes)"]
    ((restored, source),) = [(event.step, event.from_rank) for event in select(events, Restored)]
    assert [event.start_step for event in select(events, TrainingStarted)] == [0, restored]
    assert (restored in (5, 10), source) == (True, None)
    reference = root / "reference"
    reference.mkdir()
    (reference / "failed").touch()
    uninterrupted = run_world(
        settings("killed", reference, launcher="torchrun", stages=stages), reference / "runs" / "run"
    )
    assert select(events, RunEnded)[-1].weights_sha256 == uninterrupted.weights_sha256
    assert ledger.consumed_ids(run) == {1: list(range(1293)), 2: list(range(1293))}


def test_a_stage_of_a_pipeline_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    assert main(arguments_for(settings("killed", tmp_path, launcher="torchrun", stages=2), tmp_path)) == 0
    report_table.ran("torchrun")
    # Its thirteenth forward pass: one learns the shapes, then there are two in each step.
    assert_recovered(tmp_path, "rank 1 was killed by SIGKILL, in step 6", stages=2)


def test_a_ray_worker_that_is_killed_is_replaced_with_its_group_and_ray_says_which(
    tmp_path: Path, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = settings("orphaned", tmp_path, launcher="ray")
    supervise_on(ray_cluster, chosen, tmp_path, monkeypatch)
    assert "raylet" not in "".join(capfd.readouterr()), "a message of Ray's own"
    assert_recovered(tmp_path, "rank 1 died without reporting an error, in step 13")
    case = case_of(RunDirectory(tmp_path / "runs" / "run"))
    # Ray says which process died; it had forgotten it once its cluster is gone.
    died = next(fact for fact in case.ray if fact.state == "DEAD")
    assert died.what.startswith("actor ")
    assert "died" in died.why
    assert any(fact.what.startswith("node 127.0.0.1") and fact.state == "ALIVE" for fact in case.ray)


def test_a_rank_that_exits_with_0_fails_the_run_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"step": 3, "rank": 0, "trace": str(tmp_path / "f")}
    assert main(arguments_for(small_settings(model={"name": f"{MODELS}leaving", "options": options}), tmp_path)) == 1
    error = capfd.readouterr().err
    assert "rank 0 ended with exit code 0 before the training ended" in error
    assert "remedy: remove the call of sys.exit or os._exit" in error
    assert len(select(read_all(tmp_path / "runs" / "run"), TrainingStarted)) == 1


def test_a_crash_that_repeats_is_restarted_once_and_its_place_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"step": 3, "rank": 0, "trace": "/nowhere/trace"}
    chosen = small_settings(model={"name": f"{MODELS}crashing", "options": options}, scale={"max_restarts": 5})
    assert main(arguments_for(chosen, tmp_path)) == 1
    error = capfd.readouterr().err
    assert error.startswith("error: rank 0 was killed by SIGSEGV, in step 3, at ")
    assert "models.py" in error
    assert "An attempt before crashed in the same place" in error
    assert "memory" not in error
    assert len(select(read_all(tmp_path / "runs" / "run"), TrainingStarted)) == 2


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
    assert "site-packages" not in text.partition("models.py")[0]  # the user's frames come first
    assert "site-packages/ray" not in text
    assert "RayTaskError" not in text
    events = read_all(tmp_path / "runs" / "run")
    assert len(select(events, TrainingStarted)) == 1
    assert select(events, RunEnded)[-1].status == "failed"
