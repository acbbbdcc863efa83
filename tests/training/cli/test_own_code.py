"""Code folders that cannot be trained with are refused before anything starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.training.cli.command import ROOT, ask, ask_here, assert_refused
from tests.training.code.projects import write

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"


class Wrong(NamedTuple):
    """A code folder, parts of the error, and what is trained with it."""

    make: Callable[[Path], object]
    parts: tuple[str, ...]
    model: str = ""


def package(init: str) -> Callable[[Path], object]:
    return lambda folder: write(folder, {"mine/__init__.py": init, "mine/nets.py": ""})


WRONG = {
    "a file": Wrong(Path.touch, ("mine: it is a file",)),
    "secrets only": Wrong(
        lambda folder: write(folder, {".env": "TOKEN=1\n", "notes.txt": KEY}),
        ("everything in it is left out", ".env (looks like a secret)", "notes.txt"),
    ),
    "hides a package": Wrong(
        lambda folder: write(folder, {"numpy.py": "a = 1"}), ("numpy at the top", "would import the installed")
    ),
    "wrong syntax above": Wrong(package("import ("), ('mine/__init__.py", line 1', "SyntaxError"), "mine.nets:f"),
    "unknown setting": Wrong(
        lambda folder: write(folder, {"train.yaml": "loop: {epoch: 3}\n"}), ("train.yaml:1: loop.epoch", "epochs?")
    ),
}


def test_a_code_folder_that_cannot_be_used_is_refused_with_a_remedy(tmp_path: Path) -> None:
    for name, wrong in WRONG.items():
        code, runs = tmp_path / name / "mine", tmp_path / name / "runs"
        code.parent.mkdir()
        wrong.make(code)
        model = ("--model", wrong.model) if wrong.model else ()
        answer = ask_here("train", "--code", str(code), *model, "--set", f"run.directory={runs}")
        assert answer.status == 2, name
        for part in (*wrong.parts, "remedy:"):
            assert part in answer.err
        assert "/training/" not in answer.err.replace(str(tmp_path), "")
        assert not runs.exists()
    assert_refused(2, "this is the platform itself", "train", "--code", str(ROOT))


def test_names_are_checked_without_an_import_which_may_need_what_only_the_ranks_have(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    package("import torch, no_such_package")(folder)
    (folder / "mine" / "nets.py").write_text("def f(spec): return spec\n1 / 0\n")
    write(folder, {".env": "TOKEN=1\n", "key.txt": KEY})
    os.mkfifo(folder / "pipe")
    answer = ask("train", "--code", str(folder), "--model", "mine.nets:f", "--print-config")
    assert (answer.status, answer.heavy) == (0, frozenset()), answer.err
    left_out = "left out of the code archive: .env (looks like a secret), key.txt (looks like a secret)"
    assert left_out in answer.err
    assert "pipe (not a file)" in answer.err


def test_code_without_git_needs_no_more_than_a_config_in_it(tmp_path: Path) -> None:
    config = "run: {seed: 7}\nmodel: {name: 'nets:make'}\n"
    folder = write(tmp_path / "mine", {"train.yaml": config, "nets.py": "make = dict\n"})
    answer = ask("train", "--code", "mine/", "--print-config", cwd=tmp_path)
    assert (answer.status, "seed: 7" in answer.out) == (0, True), answer.err
    assert sorted(path.name for path in folder.iterdir()) == ["nets.py", "train.yaml"]
