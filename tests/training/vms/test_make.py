"""The make targets of clusters of virtual machines."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.makefile import command, make

_STACK = ["ENV=dev", "TEAM=research", "GROUP=a10g"]
_ON_STACK = ["--env", "dev", "--team", "research"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            ["HOSTS=10.0.0.1 10.0.0.2", "SSH_USER=me", "RUNS=/nfs/my runs", "SSH_KEY=it's"],
            [
                *("--host", "10.0.0.1", "--host", "10.0.0.2"),
                *("--ssh-user", "me", "--ssh-key", "it's", "--runs", "/nfs/my runs"),
            ],
        ),
        (
            [*_STACK, "WORKERS=0-4", "PROFILE=head,workers", "AMI=ami-1", "SPOT=1", "NAME=lab"],
            [
                *(*_ON_STACK, "--name", "lab", "--workers", "0-4", "--group", "a10g", "--spot"),
                *("--profile", "head,workers", "--ami", "ami-1"),
            ],
        ),
        (
            ["OUTPUTS=a b.json", "TRACKING=https://mlflow.example.org", "OUT=a b.yaml"],
            ["--outputs", "a b.json", "--tracking-uri", "https://mlflow.example.org", "--out", "a b.yaml"],
        ),
    ],
)
def test_ray_cluster_passes_its_variables(typed: list[str], words: list[str]) -> None:
    assert command("ray-cluster", *typed) == ["-m", "training", "ray-cluster", *words]


def test_anyscale_passes_the_settings_and_its_machines() -> None:
    typed = [*_STACK, "CLOUD=lab", "NODES=0-4", "WORKERS=8", "GPU=1", "NAME=first", "OUT=first"]
    passed = command("anyscale", *typed)
    assert passed[:3] == ["-m", "training", "anyscale"]
    for pair in (("--num-workers", "8"), ("--workers", "0-4"), ("--cloud", "lab"), ("--group", "a10g")):
        assert pair in pairwise(passed)


@pytest.mark.parametrize("target", ["train", "resume", "logs", "stop", "jobs"])
def test_commands_on_jobs_take_a_launcher_file(target: str) -> None:
    passed = command(target, "RAY=my lab.yaml")
    assert passed[2] == target
    assert ("--ray", "my lab.yaml") in pairwise(passed)


@pytest.mark.parametrize("target", ["resize", "tune", "run", "notebook"])
def test_other_commands_refuse_a_launcher_file_instead_of_working_here(target: str) -> None:
    refused = make("--dry-run", target, "RAY=lab.yaml")
    assert refused.returncode == 2
    assert "RAY=file.yaml is for train, resume, logs, stop and jobs" in refused.stderr


def test_a_command_that_takes_no_launcher_file_refuses_it_beside_one_that_does() -> None:
    refused = make("--dry-run", "jobs", "resize", "RAY=lab.yaml")
    assert refused.returncode == 2
    assert refused.stdout == ""
