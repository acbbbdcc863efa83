"""The Makefile passes typed variables to the command line, and nothing else."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def command(*arguments: str, environment: dict[str, str] | None = None) -> list[str]:
    """The last command that make would run, in words, without the interpreter."""
    planned = make("--dry-run", *arguments, environment=environment)
    assert planned.returncode == 0, planned.stderr
    return shlex.split(planned.stdout.splitlines()[-1])[1:]


def test_train_without_variables_is_the_bare_command() -> None:
    assert command("train") == ["-m", "training", "train"]


@pytest.mark.parametrize(
    ("variable", "flags"),
    [
        ("MODEL=resnet18", ["--model", "resnet18"]),
        ("DATASET=cifar10", ["--dataset", "cifar10"]),
        ("DATA=some folder", ["--data-path", "some folder"]),
        ("WORKERS=4", ["--num-workers", "4"]),
        ("GPU=1", ["--use-gpu"]),
        ("GPU=0", ["--no-use-gpu"]),
        ("EPOCHS=5", ["--epochs", "5"]),
        ("BATCH=128", ["--batch", "128"]),
        ("LR=1e-3", ["--lr", "1e-3"]),
        ("SEED=7", ["--seed", "7"]),
        ("CONFIG=digits my.yaml", ["--config", "digits", "--config", "my.yaml"]),
        ("LAUNCHER=torchrun", ["--launcher", "torchrun"]),
        ("NAME=it's", ["--name", "it's"]),
        (
            "SET=loop.epochs=3 optimizer.betas=[0.8,0.9]",
            ["--set", "loop.epochs=3", "--set", "optimizer.betas=[0.8,0.9]"],
        ),
        ("ARGS=--print-config --set 'run.name=a b'", ["--print-config", "--set", "run.name=a b"]),
    ],
)
def test_a_variable_becomes_its_flag(variable: str, flags: list[str]) -> None:
    assert command("train", variable) == ["-m", "training", "train", *flags]


@pytest.mark.parametrize("target", ["resume", "stop", "monitor", "logs", "sync", "verify"])
def test_name_selects_the_run(target: str) -> None:
    assert command(target, "NAME=mine") == ["-m", "training", target, "mine"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["graph", "ENV=prod"], ["graph", "--env", "prod"]),
        (["graph", "ENV=prod", "FILE=a b.svg"], ["graph", "--env", "prod", "--picture", "a b.svg"]),
        (["graph", "ENV=prod", "FILE=graph.json"], ["graph", "--env", "prod", "--json", "graph.json"]),
        (["cost", "ENV=dev"], ["cost", "--env", "dev"]),
        (["preview", "ENV=dev"], ["preview", "--env", "dev"]),
        (["up", "ENV=dev"], ["up", "--env", "dev"]),
        (["up", "ENV=dev", "YES=1"], ["up", "--env", "dev", "--yes"]),
        (["destroy", "ENV=dev", "YES=1"], ["destroy", "--env", "dev", "--yes"]),
        (["outputs", "ENV=dev", "FILE=outputs.json"], ["outputs", "--env", "dev", "--file", "outputs.json"]),
        (["release-check"], ["release-check"]),
        (["release-lock", "ARGS=--dry-run"], ["release-lock", "--dry-run"]),
        (["prices"], ["prices"]),
        (["image"], ["image"]),
        (["image", "IMAGE=trainer", "VARIANT=cpu"], ["image", "trainer", "--variant", "cpu"]),
        (["image", "PUSH=1", "ENV=dev"], ["image", "--push", "--env", "dev"]),
        (["charts", "ENV=dev"], ["charts", "--env", "dev"]),
        (["engines"], ["engines"]),
        (["sandbox", "ENV=dev", "ARGS=--crds folder"], ["sandbox", "--env", "dev", "--crds", "folder"]),
        (["sandbox-down"], ["sandbox-down"]),
    ],
)
def test_commands_of_the_stack_call_the_lifecycle(typed: list[str], words: list[str]) -> None:
    assert command(*typed) == ["-m", "infra.lifecycle", *words]


ON_DEV = ["--env", "dev", "--team", "research"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["train", "GROUP=a10g", "DETACH=1"], ["train", *ON_DEV, "--group", "a10g", "--detach"]),
        (["job", "EPOCHS=3", "OUT=job.yaml"], ["job", "--epochs", "3", *ON_DEV, "--out", "job.yaml"]),
        (["jobs"], ["jobs", *ON_DEV]),
        (["logs", "JOB=mine"], ["logs", "mine", *ON_DEV]),
        (["stop", "JOB=mine"], ["stop", "mine", *ON_DEV]),
        (["resume", "JOB=mine", "DETACH=1"], ["resume", "mine", *ON_DEV, "--detach"]),
    ],
)
def test_with_env_the_commands_work_on_its_cluster(typed: list[str], words: list[str]) -> None:
    assert command(*typed, "ENV=dev", "TEAM=research") == ["-m", "training", *words]


def test_environment_variables_are_ignored() -> None:
    assert command("train", environment={"NAME": "host", "SEED": "3", "ARGS": "--help"}) == command("train")


def test_an_unknown_variable_is_refused() -> None:
    refused = make("train", "EPOCH=3")
    assert refused.returncode == 2
    assert "unknown variable EPOCH; known: MODEL DATASET" in refused.stderr


def test_help_lists_every_command() -> None:
    commands = ["train", "resume", "stop", "job", "jobs", "monitor", "logs", "ui", "sync", "verify"]
    commands += ["graph", "cost", "preview", "up", "destroy", "outputs", "release-check", "charts", "image"]
    commands += ["release-lock", "prices"]
    commands += ["engines", "sandbox", "sandbox-down"]
    commands += ["bench", "test", "lint", "env", "lock", "clean", "help"]
    listed = make()
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")] == commands


def test_variables_are_not_exported_to_the_command() -> None:
    shown = make("--eval", "show:; @env", "show", "NAME=mine", "SEED=3", "TORCH_VERSION=2.15.0")
    names = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert names & {"NAME", "SEED", "PYTHONDONTWRITEBYTECODE"} == set()
    assert "TORCH_VERSION" in names
