"""The content of a build: what .dockerignore leaves of the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.lifecycle.image.source import IgnoreRules, read_source, require_committed
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.samples import checkout, commit, git


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout of the trainer."""
    return checkout(tmp_path, "trainer")


def content(folder: Path) -> str:
    return read_source(folder, "trainer").content


def test_the_rules_of_the_repository() -> None:
    rules = IgnoreRules((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    taken = {"training/loop.py", "training/image/install-efa", "infra/spec/errors.py", "requirements.lock"}
    left = {
        "training/cluster/commands.py",
        "training/__pycache__/loop.cpython-311.pyc",
        "training/README.md",
        "training/image/Dockerfile",
        "infra/spec/release.yaml",
        "requirements-dev.lock",
        "README.md",
        "trainings/x.py",
    }
    assert {path for path in taken | left if rules.takes(path)} == taken


def test_two_checkouts_of_the_same_files_have_the_same_content(tmp_path: Path) -> None:
    one, other = checkout(tmp_path / "one", "trainer"), checkout(tmp_path / "other", "trainer")
    (other / "training/module.py").chmod(0o600)
    assert content(one) == content(other)


def test_a_file_that_the_build_does_not_take_changes_nothing(folder: Path) -> None:
    before = content(folder)
    for name in ("README.md", "training/README.md", "training/cluster/x.py", "training/__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("changed\n")
    source = read_source(folder, "trainer")
    assert (source.content, source.changed) == (before, ())
    require_committed(source, "trainer")


def test_the_executable_bit_and_the_name_of_a_file_count(folder: Path) -> None:
    contents = [content(folder)]
    (folder / "training/module.py").chmod(0o755)
    contents.append(content(folder))
    (folder / "training/module.py").rename(folder / "training/renamed.py")
    contents.append(content(folder))
    (folder / "training/link.py").symlink_to("renamed.py")
    contents.append(content(folder))
    assert len(set(contents)) == 4


def test_a_changed_new_or_deleted_file_of_the_build_is_not_pushed(folder: Path) -> None:
    names = ("requirements.lock", "training/image/Dockerfile", "training/module.py", "tune/new.py")
    for count, name in enumerate(names, start=1):
        (folder / name).write_text("changed\n")
        source = read_source(folder, "trainer")
        assert source.changed == names[:count]
        assert source.recorded_revision.endswith("-dirty")
        with pytest.raises(RefusedError, match=name):
            require_committed(source, "trainer")
    commit(folder)
    (folder / "tune/module.py").unlink()
    assert read_source(folder, "trainer").changed == ("tune/module.py",)


def test_a_file_that_git_ignores_and_the_build_takes_is_not_pushed(folder: Path) -> None:
    before = content(folder)
    (folder / "training/logs").mkdir()
    (folder / "training/logs/run.log").write_text("taken by COPY\n")
    for rule in ("*.log\n", "logs/\n"):
        (folder / ".gitignore").write_text(rule)
        git(folder, "add", ".gitignore")
        git(folder, "commit", "--quiet", "--message", rule)
        source = read_source(folder, "trainer")
        assert source.changed == ("training/logs/run.log",)
        assert source.content != before


def test_a_folder_without_a_commit_is_refused(tmp_path: Path) -> None:
    checkout(tmp_path, "trainer")
    (tmp_path / ".git").rename(tmp_path / "no-git")
    with pytest.raises(PlatformError, match=r"git rev-parse"):
        read_source(tmp_path, "trainer")
