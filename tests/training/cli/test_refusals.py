"""Invalid requests are refused before anything starts: exit status, message, and no heavy import."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.training.cli.command import ask, ask_here, assert_refused
from tests.training.runs import small_settings
from training.cli import main
from training.errors import SettingsError
from training.options.given import ChangeOptions
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
    refuses("train --launcher plain --num-workers 2", 2, "plain", "workers=2")
    refuses("train --launcher torchrun --nodes 2 --rendezvous head:29400", 2, "run.name", "nodes=2")
    refuses("resume nobody", 2, "nobody", "no such run")
    refuses("verify nobody", 2, "nobody", "no such run")
    refuses("logs", 2, "no runs under", "make train")


def test_what_this_machine_does_not_have_is_refused_by_name_with_what_fits(refuses: Refuses) -> None:
    refuses("train --set run.directory=/proc/runs", 3, "run.directory=/proc/runs cannot be written")
    workers = available_cpus() + 1
    refuses(f"train --num-workers {workers} --batch {workers * 8}", 3, f"--num-workers {workers - 1} fits")
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        refuses("train --use-gpu", 3, "scale.gpu=true", "none was found")


def test_a_run_that_is_already_driven_is_refused_with_the_process(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "busy")
    run.path.mkdir()
    run.write_settings(small_settings())
    with run.driving():
        answer = ask("train", "--name", "busy", "--set", f"run.directory={tmp_path}")
    assert answer.status == 3
    for part in ("busy", str(os.getpid()), f"make stop NAME={run.path}"):
        assert part in answer.err


def test_a_refusal_imports_nothing_heavy() -> None:
    for words in ("train --model resnet19", "train --num-workers 4096 --batch 4096", "resume nobody"):
        assert ask(*words.split()).heavy == set(), words


def test_an_option_of_a_cluster_needs_its_environment() -> None:
    for words in (
        ["train", "--team", "research"],
        ["train", "--detach"],
        ["train", "--deadline-hours", "3"],
        ["train", "--schedule", "0 2 * * *"],
        ["stop", "--detach", "first"],
        ["jobs", "--team", "research"],
        ["logs", "--pod", "x"],
    ):
        assert_refused(2, f"{words[1]} needs a cluster\n  remedy: name its environment: ENV=… (--env)", *words)


def test_a_number_outside_its_range_is_refused_with_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flag, value, said in (
        (["ui"], "--port", "65536", "at least 0 and at most 65535"),
        (["forward", "--env", "dev"], "--port", "-1", "at least 1 and at most 65535"),
        (["logs"], "--rank", "-1", "at least 0"),
        (["cluster", "--env", "dev"], "--hours", "inf", "at least 0"),
        (["data-sync", "--env", "dev"], "--workers", "0", "at least 1"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*words, flag, value])
        assert caught.value.code == 2
        assert f"argument {flag}: must be {said}, not {value}" in capsys.readouterr().err


def test_the_log_of_a_rank_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    logs = tmp_path / "first" / "logs"
    logs.mkdir(parents=True)
    for file in (logs.parent / "settings.yaml", logs / "rank-0.jsonl", logs / "rank-1.jsonl"):
        file.touch()
    said = "run first has no log of rank 7\n  remedy: ranks that have written: 0, 1"
    assert_refused(2, said, "logs", "first", "--root", str(tmp_path), "--rank", "7")


def test_a_session_outside_its_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's answer is a double: the real one finds any cluster of the machine, also another test's."""

    def no_cluster(address: str) -> NoReturn:
        raise ConnectionError(f"Could not find any running Ray instance at {address}")

    monkeypatch.setattr("training.interactive.activity.RayCluster", no_cluster)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # SIGTERM would interrupt the tests after this one
    assert_refused(3, "no Ray cluster answers at auto", "session")


def test_the_keys_of_one_text_are_split_as_a_shell_splits_them() -> None:
    split = ChangeOptions(set=("c=3",), set_all="a.b='[x y, z]' b=\"it's\"")
    assert split.set == ("a.b=[x y, z]", "b=it's", "c=3")
    assert replace(split, set=("d=4",)).set == ("d=4",)
    for text, said in (("a.b=[x y, z]", "split at spaces, and 'y,' is no"), ("a='b", "SET=a='b: no closing quotation")):
        with pytest.raises(SettingsError, match=re.escape(said)):
            ChangeOptions(set_all=text)
