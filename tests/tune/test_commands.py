"""The commands that a search prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.makefile import command
from tests.tune.sample_search import CODE, NAME, SampleSearch
from training.environment import RUN_ARGUMENTS_VARIABLE
from tune.commands import train_command
from tune.folder import SearchFolder


def test_the_command_of_the_best_trial_reads_its_settings_and_the_code_that_the_search_kept(tmp_path: Path) -> None:
    search = SampleSearch(trials=4, epochs=3)
    words = shlex.split(train_command(search.history, tmp_path))
    name = f"{NAME}-{search.history.ranked()[0].id}"
    assert words[0] == "make"
    planned = command(*words[1:])
    assert planned == ["-m", "training", "train", "--config", str(tmp_path / "best.yaml"), "--name", name]
    folder = tmp_path / "it's $HOME"
    with_code = shlex.split(train_command(SampleSearch(trials=4, epochs=3, code=True).history, folder))
    planned = command(*[word for word in with_code[1:] if not word.startswith("CONFIG=")])
    assert planned[planned.index("--code") + 1] == str(folder / CODE["archive"])


def test_the_command_of_a_search_on_a_cluster_takes_copies_of_its_files_and_a_valid_name() -> None:
    search = SampleSearch(trials=1, epochs=2, name="a" * 47, code=True)
    words = shlex.split(train_command(search.history, Path("/mnt/runs/searches") / ("a" * 47)))
    assert words[:4] == ["make", "train", "ENV=…", "CONFIG=best.yaml"]
    assert words[4:] == [f"NAME={'a' * 42}-t001", "CODE=a.tar.gz"]
    long = SampleSearch(trials=1, epochs=2, name="a" * 63)
    assert f"NAME={'a' * 58}-t001" in shlex.split(train_command(long.history, Path("/runs")))


def test_a_search_is_continued_by_what_its_user_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SearchFolder(tmp_path / "my search")
    monkeypatch.delenv(RUN_ARGUMENTS_VARIABLE, raising=False)
    assert shlex.split(folder.command) == ["make", "tune", f"NAME={tmp_path}/my search"]
    monkeypatch.setenv(RUN_ARGUMENTS_VARIABLE, "ENV=prod JOB=first TEAM=research")
    assert folder.command == "make tune ENV=prod NAME=first TEAM=research"
