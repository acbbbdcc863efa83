"""A user's own command on its way to a job and back, without a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from platform_charts.jobs.rayjob import render_job
from tests.training.cli.command import assert_refused
from tests.training.cluster.team_cluster import dev_outputs, target
from training.cli import main
from training.cluster.command_jobs import Command, command_of_job, name_of
from training.cluster.job_manifest import JobOptions, config_maps, options_of
from training.cluster.state import Observation, state_of
from training.code.archive import pack
from training.code.identity import SUFFIX
from training.options.scripts import CommandOptions

ODD = "python train.py --note 'it'\"'\"'s a=b' && echo \"$HOME\" | tee x; # done\nexit 3"


def run_words(folder: Path, *arguments: str) -> list[str]:
    """The command line of `run --out`, which writes `job.yaml` to a folder."""
    outputs, out = folder / "outputs.json", folder / "job.yaml"
    outputs.write_text(json.dumps(dev_outputs()))
    where = ["--env", "dev", "--team", "research", "--outputs", str(outputs), "--out", str(out)]
    return ["run", *where, *arguments]


def test_the_command_of_a_job_can_be_read_from_it() -> None:
    for command in (
        Command(text="torchrun train.py", workers=8, gpus_per_worker=1, cpus_per_worker=1),
        Command(text=ODD, workers=3, gpus_per_worker=0, cpus_per_worker=6),
    ):
        options = JobOptions(group="a10g" if command.gpus_per_worker else None, restarts=2, priority="low")
        *_, ray_job = render_job(command.request("mine", team="research", options=options, code=None), target())
        assert command_of_job(ray_job) == command
        found = options_of(ray_job)
        assert (found.group, found.restarts, found.priority) == (options.group, 2, "low")
        assert config_maps(ray_job) == ()


def test_run_writes_the_objects_of_the_job(code: Path, tmp_path: Path) -> None:
    given = ["--cmd", ODD, "--code", str(code), "--workers", "4", "--group", "a10g", "--name", "mine"]
    assert main(run_words(tmp_path, *given)) == 0
    part, ray_job = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    assert command_of_job(ray_job) == Command(text=ODD, workers=4, gpus_per_worker=1, cpus_per_worker=1)
    assert config_maps(ray_job) == (part["metadata"]["name"],)


def test_bad_input_is_refused_before_connecting_to_a_cluster(code: Path, tmp_path: Path) -> None:
    archive = tmp_path / f"code{SUFFIX}"
    archive.write_bytes(pack(code).data)
    assert main(run_words(tmp_path, "--cmd=torchrun train.py", "--code", str(archive))) == 0
    kept = ["--cmd=torchrun other.py", "--code", str(archive)]
    folder = ["--code", str(code)]
    for arguments, status, said in (
        (["--cmd=", *folder], 2, "cmd is empty"),
        (["--cmd=torchrun tain.py", *folder], 2, "did you mean train.py?"),
        (kept, 2, f"other.py: no such file in the code of {archive}"),
        (["--cmd=torchrun train.py"], 2, "train.py: no such file in the job's pods, which have no code folder"),
        (["--cmd=true", "--name=session-x"], 2, "only the names of sessions begin with session-"),
        (["--cmd=true", "--name=Mine"], 2, "invalid name='Mine'"),
        (["--cmd=true", "--group=none", "--use-gpu"], 2, "no such GPU group"),
        (["--cmd=true", "--group=a10g", "--no-use-gpu"], 2, "leave the group out"),
        (["--cmd=true", "--team=nobody"], 2, "no team nobody"),
        (["--cmd=nvidia-smi", "--use-gpu", "--workers=512"], 3, "no GPU group of stack dev can take nvidia-smi-"),
    ):
        assert_refused(status, said, *run_words(tmp_path, *arguments))


def test_a_job_is_named_after_its_script_and_the_time() -> None:
    now = datetime(2026, 11, 22, 8, 0, 0, tzinfo=UTC)
    assert name_of(CommandOptions(cmd="torchrun tools/Big_model.py"), now=now) == "big-model-20261122-080000"
    assert name_of(CommandOptions(cmd="torchrun x.py", name="mine"), now=now) == "mine"


def test_the_exit_status_of_the_command_is_mirrored() -> None:
    command = Command(text="exit 3", workers=1, gpus_per_worker=0, cpus_per_worker=1)
    *_, ray_job = render_job(command.request("mine", team="research", options=JobOptions(), code=None), target())
    for code, stage, status, reason in (
        (3, "failed", 3, "the command exited with status 3"),
        (137, "failed", 137, "the command exited with status 137"),
        (130, "stopped", 130, "the command was stopped"),
        (-9, "failed", 1, "the driver exited with code -9"),
    ):
        message = f"Job entrypoint command failed with exit code {code}, last available logs"
        ray_job["status"] = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": message}
        state = state_of(Observation(job=ray_job))
        assert (state.stage, state.status, state.reason) == (stage, status, reason)
