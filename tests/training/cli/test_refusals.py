"""Invalid requests are refused before anything starts: exit status, message, and no heavy import."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.training.cli.command import ask
from tests.training.runs import small_settings
from training.preflight import available_cpus
from training.rundir import RunDirectory


@dataclass(frozen=True)
class Refusal:
    """A command line, its exit status, and parts of its error."""

    arguments: tuple[str, ...]
    status: int
    parts: tuple[str, ...]


def assert_refused(refusal: Refusal, root: Path) -> None:
    answer = ask(*refusal.arguments)
    assert answer.status == refusal.status, answer.err
    for part in (*refusal.parts, "remedy:"):
        assert part in answer.err
    assert "Traceback" not in answer.err
    assert answer.heavy == set()
    assert list(root.glob("*/events.jsonl")) == []


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(("train", "--model", "resnet19"), 2, ("resnet19", "did you mean resnet18?")),
        Refusal(("train", "--dataset", "digit"), 2, ("digit", "did you mean digits?")),
        Refusal(("train", "--set", "loop.epoch=3"), 2, ("loop.epoch: no such setting", "did you mean epochs?")),
        Refusal(("train", "--set", "loop.epochs=none"), 2, ("loop.epochs", "none")),
        Refusal(("train", "--set", "model.options.depth=3"), 2, ("depth", "simple_cnn")),
        Refusal(("train", "--batch", "65"), 2, ("65", "must be a multiple of", "nearest: 64")),
        Refusal(("train", "--launcher", "plain", "--num-workers", "2"), 2, ("plain", "workers=2")),
        Refusal(("train", "--config", "digit"), 2, ("digit", "digits")),
        Refusal(("train", "--dataset", "cifar10"), 2, ("data.path",)),
        Refusal(
            ("train", "--launcher", "torchrun", "--nodes", "2", "--rendezvous", "head:29400"),
            2,
            ("run.name", "nodes=2"),
        ),
        Refusal(("train", "--num-workers", "4096", "--batch", "4096"), 3, ("4096", "CPUs", "--num-workers")),
        Refusal(("train", "--dataset", "cifar10", "--data-path", "/nowhere"), 3, ("/nowhere",)),
        Refusal(("train", "--set", "scale.address=127.0.0.1:1"), 3, ("scale.address=127.0.0.1:1",)),
        Refusal(("resume", "nobody"), 2, ("nobody", "no such run")),
        Refusal(("verify", "nobody"), 2, ("nobody", "no such run")),
        Refusal(("logs",), 2, ("no runs under", "make train")),
    ],
    ids=lambda refusal: " ".join(refusal.arguments[:3]),
)
def test_invalid_input_is_refused_with_a_remedy(refusal: Refusal, tmp_path: Path) -> None:
    is_new = refusal.arguments[0] == "train"
    where = ("--set", f"run.directory={tmp_path}") if is_new else ("--root", str(tmp_path))
    assert_refused(Refusal((*refusal.arguments, *where), refusal.status, refusal.parts), tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_by_its_name(tmp_path: Path) -> None:
    arguments = ("train", "--set", "run.directory=/proc/runs")
    assert_refused(Refusal(arguments, 3, ("run.directory=/proc/runs cannot be written",)), tmp_path)


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="this machine has a GPU")
def test_a_missing_gpu_is_refused(tmp_path: Path) -> None:
    arguments = ("train", "--use-gpu", "--set", f"run.directory={tmp_path}")
    assert_refused(Refusal(arguments, 3, ("scale.gpu=true", "none was found")), tmp_path)


def test_more_workers_than_cpus_are_refused_with_the_number_that_fits(tmp_path: Path) -> None:
    workers = available_cpus() + 1
    arguments = ("train", "--num-workers", str(workers), "--batch", str(workers * 8))
    refusal = Refusal((*arguments, "--set", f"run.directory={tmp_path}"), 3, (f"--num-workers {workers - 1} fits",))
    assert_refused(refusal, tmp_path)


def test_a_port_in_use_is_refused_by_number(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        arguments = ("train", "--set", f"metrics.port={port}", "--set", f"run.directory={tmp_path}")
        assert_refused(Refusal(arguments, 3, (f"metrics.port={port} is in use", "metrics.port=0")), tmp_path)


def test_a_run_that_is_already_driven_is_refused_with_the_process(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "busy")
    run.path.mkdir()
    run.write_settings(small_settings())
    with run.driving():
        arguments = ("train", "--name", "busy", "--set", f"run.directory={tmp_path}")
        assert_refused(Refusal(arguments, 3, ("busy", str(os.getpid()), f"make stop NAME={run.path}")), tmp_path)
