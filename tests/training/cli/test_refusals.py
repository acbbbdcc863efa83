"""Invalid requests are refused before anything starts: exit status, message, and no heavy import."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.cli.command import ask, ask_here
from tests.training.runs import small_settings
from training.preflight import available_cpus
from training.rundir import RunDirectory

Refuses = Callable[..., None]


@pytest.fixture
def refuses(tmp_path: Path) -> Refuses:
    """Checks that a command line ends with a status, parts of an error and a remedy, and that it starts no run."""

    def check(words: str, status: int, *parts: str) -> None:
        command, *arguments = words.split()
        where = ["--set", f"run.directory={tmp_path}"] if command == "train" else ["--root", str(tmp_path)]
        answer = ask_here(command, *where, *arguments)
        assert (answer.status, "Traceback" in answer.err) == (status, False), answer
        for part in (*parts, "remedy:"):
            assert part in answer.err
        assert list(tmp_path.glob("*/events.jsonl")) == []

    return check


def test_invalid_input_is_refused_with_a_remedy(refuses: Refuses) -> None:
    refuses("train --model resnet19", 2, "resnet19", "did you mean resnet18?")
    refuses("train --dataset digit", 2, "digit", "did you mean digits?")
    refuses("train --set loop.epoch=3", 2, "loop.epoch: no such setting", "did you mean epochs?")
    refuses("train --set loop.epochs=none", 2, "loop.epochs", "none")
    refuses("train --set model.options.depth=3", 2, "depth", "simple_cnn")
    refuses("train --batch 65", 2, "65", "must be a multiple of", "nearest: 64")
    refuses("train --launcher plain --num-workers 2", 2, "plain", "workers=2")
    refuses("train --config digit", 2, "digit", "digits")
    refuses("train --dataset cifar10", 2, "data.path")
    refuses("train --launcher torchrun --nodes 2 --rendezvous head:29400", 2, "run.name", "nodes=2")
    refuses("resume nobody", 2, "nobody", "no such run")
    refuses("verify nobody", 2, "nobody", "no such run")
    refuses("logs", 2, "no runs under", "make train")


def test_what_this_machine_does_not_have_is_refused_by_name_with_what_fits(refuses: Refuses) -> None:
    refuses("train --dataset cifar10 --data-path /nowhere", 3, "/nowhere")
    refuses("train --set scale.address=127.0.0.1:1", 3, "scale.address=127.0.0.1:1")
    refuses("train --set run.directory=/proc/runs", 3, "run.directory=/proc/runs cannot be written")
    workers = available_cpus() + 1
    refuses(f"train --num-workers {workers} --batch {workers * 8}", 3, f"--num-workers {workers - 1} fits")
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        refuses("train --use-gpu", 3, "scale.gpu=true", "none was found")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refuses(f"train --set metrics.port={port}", 3, f"metrics.port={port} is in use", "metrics.port=0")


def test_a_run_that_is_already_driven_is_refused_with_the_process(refuses: Refuses, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "busy")
    run.path.mkdir()
    run.write_settings(small_settings())
    with run.driving():
        refuses("train --name busy", 3, "busy", str(os.getpid()), f"make stop NAME={run.path}")


def test_a_refusal_imports_nothing_heavy() -> None:
    for words in ("train --model resnet19", "train --num-workers 4096 --batch 4096", "resume nobody"):
        assert ask(*words.split()).heavy == set(), words
