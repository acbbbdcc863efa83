"""`new`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.training.cli.command import ROOT, ask
from training import new_project
from training.errors import PlatformError
from training.new_project import place_of

FILES = {
    ".gitignore",
    "README.md",
    "requirements.txt",
    "results.ipynb",
    "train.yaml",
    "tune.yaml",
    *(f"tumour_cost/{name}.py" for name in ("__init__", "data", "model", "objective")),
    "test_tumour_cost.py",
}


def files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_a_new_project_has_its_name_in_every_file_and_says_what_to_do_next(tmp_path: Path) -> None:
    """Also in an empty folder, or a repository without files."""
    folder = tmp_path / "tumour-cost"
    (folder / ".git").mkdir(parents=True)
    answer = ask("new", str(folder))
    assert answer.status == 0, answer.err
    assert answer.heavy == set()
    assert files(folder) == FILES
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in FILES}
    assert [name for name, text in texts.items() if re.search("my[-_]project", text, re.IGNORECASE)] == []
    assert texts["README.md"].startswith("# tumour-cost\n")
    assert "name: tumour_cost.model:Net" in texts["train.yaml"]
    assert [cell for cell in json.loads(texts["results.ipynb"])["cells"] if cell.get("outputs")] == []
    named = dict(re.findall(r"make (train|tune|test) CODE=(\S+)", answer.out))  # as the shorter of its two paths
    assert {command: (ROOT / path).resolve() for command, path in named.items()} == dict.fromkeys(
        ("train", "tune", "test"), folder
    )


def test_a_name_is_a_folder_beside_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT / "docs")
    assert place_of("mine") == ROOT.parent / "mine"
    assert place_of("../mine") == ROOT / "mine"
    monkeypatch.chdir(tmp_path)
    assert place_of("mine") == tmp_path / "mine"


def test_a_wrong_name_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full" / "a").mkdir(parents=True)
    (tmp_path / "full" / "b").write_text("b")
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    for name, status, *parts in (
        ("full", 3, "full", "2 files or folders", "another NAME"),
        ("file", 3, "file", "is a file"),
        ("nowhere/mine", 2, "nowhere", "no such folder"),
        ("my project", 2, "'my project'", "letters, digits, - and _"),
        ("1st", 2, "'1st'", "start with a letter"),
        ("class", 2, "'class'", "word of Python"),
        ("scikit_learn/..", 2, "'..'"),
        *((module, 2, f"module '{module}'", "another NAME") for module in ("json", "numpy", "training", "tests")),
        *((str(ROOT / folder / "mine"), 2, str(ROOT), "NAME=../mine") for folder in (".", "docs")),
    ):
        with pytest.raises(PlatformError) as refused:
            new_project.create(str(name))
        assert refused.value.status == status, name
        assert refused.value.remedy
        assert [part for part in parts if str(part) not in str(refused.value)] == [], name
    assert files(tmp_path) == before
    assert not (ROOT / "mine").exists()
    assert not (ROOT / "docs" / "mine").exists()


def test_the_command_names_the_missing_name() -> None:
    answer = ask("new")
    assert answer.status == 2, answer.err
    for part in ("NAME", "make new NAME=my-project", "remedy:"):
        assert part in answer.err


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(PlatformError, match="Permission denied"):
        new_project.create(str(tmp_path / "mine"))
