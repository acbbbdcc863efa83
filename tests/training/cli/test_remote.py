"""The commands with a bucket behind the run's folder: train, lose the machine, resume, verify."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from observability.runlog import CheckpointUploaded, Notice, Restored, read_all, select
from tests.engines.s3_faults import FaultyS3
from tests.training.checkpoint.remote.conftest import proxy, remote
from tests.training.checkpoint.remote.parts import connect, failing
from tests.training.cli.command import ask_here, assert_refused
from tests.training.runs import run_alone, small_settings
from training.checkpoint.remote.lease import LEASE_OBJECT
from training.cli import main
from training.rundir import RunDirectory

__all__ = ["proxy", "remote"]  # fixtures

STEPS = 12


def train(root: Path, step: int, remote: str | None) -> RunDirectory:
    """A run that has ended after a step, and saves every four."""
    run = RunDirectory(root / "run")
    settings = small_settings(
        run={"directory": root, "name": "run"},
        loop={"max_steps": step},
        schedule={"name": "constant"},
        checkpoint={"every_steps": 4, "remote": remote},
    )
    run.path.mkdir(parents=True, exist_ok=True)
    run.write_settings(settings)
    run_alone(settings, run.path)
    return run


@pytest.mark.extended
def test_a_run_whose_machine_is_lost_is_resumed_on_an_empty_one_by_its_name_and_bucket(
    tmp_path: Path, remote: str
) -> None:
    train(tmp_path / "lost", 8, remote)
    shutil.rmtree(tmp_path / "lost")
    root = tmp_path / "empty"
    arguments = ["--root", str(root), "--set", f"checkpoint.remote={remote}", "--set", f"loop.max_steps={STEPS}"]
    assert main(["resume", "run", *arguments]) == 0
    uninterrupted = train(tmp_path / "whole", STEPS, None)
    model = "model/model.safetensors"
    assert (root / "run" / model).read_bytes() == (uninterrupted.path / model).read_bytes()
    events = read_all(root / "run")
    assert [event.step for event in select(events, Restored)] == [8]
    assert select(events, CheckpointUploaded)[-1].step == STEPS
    names = [one.name for one in connect(remote).objects()]
    assert LEASE_OBJECT not in names
    verified = ask_here("verify", "run", "--root", str(root))
    assert (verified.status, f"{remote}/run/step-{STEPS:08d}: good" in verified.out) == (0, True)


@pytest.mark.extended
def test_a_bucket_that_refuses_everything_after_the_start_fails_no_run(
    tmp_path: Path, remote: str, proxy: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("training.checkpoint.remote.uploader._FIRST_RETRY", 0.01)
    proxy.fault = failing(503, when=lambda one: one.method == "PUT")
    run = train(tmp_path, 8, remote)
    warnings = [event.message for event in select(read_all(run.path), Notice) if event.level == "warning"]
    assert any("SlowDown" in message and "in the run's folder only" in message for message in warnings)
    assert (run.model / "model.safetensors").exists()


def test_a_bucket_that_does_not_exist_is_refused_before_a_folder_is_made(tmp_path: Path, proxy: FaultyS3) -> None:
    root = tmp_path / "runs"
    arguments = ["--set", f"run.directory={root}", "--set", "checkpoint.remote=s3://no-such-bucket/team"]
    assert_refused(3, "there is no bucket no-such-bucket", "train", "--name", "run", *arguments)
    assert not (root / "run").exists()


def test_a_name_without_a_run_in_the_bucket_is_refused(tmp_path: Path, remote: str) -> None:
    arguments = ["--root", str(tmp_path), "--set", f"checkpoint.remote={remote}"]
    assert_refused(2, f"neither {tmp_path} nor {remote}/nobody has it", "resume", "nobody", *arguments)


def test_verify_names_damage_in_the_bucket(tmp_path: Path, remote: str) -> None:
    run = train(tmp_path, 4, remote)
    bucket = connect(remote)
    content = bytearray(bucket.read("step-00000004/model.safetensors").data)
    content[-1] ^= 1
    bucket.write("step-00000004/model.safetensors", bytes(content))
    verified = ask_here("verify", "run", "--root", str(run.path.parent))
    assert verified.status == 1
    assert verified.out.splitlines()[-1] == f"{remote}/run/step-00000004: model.safetensors does not match its sha256"
