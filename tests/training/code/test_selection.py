"""Which files of a code folder are copied, what is left out, and what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import RefusedError, SettingsError
from training.code.rules import check_modules, check_path, skipped
from training.code.selection import describe_left_out, ignored_by_git, require_files, select

PRIVATE_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"


def write(folder: Path, *paths: str, text: str = "x = 1\n") -> Path:
    """A folder with files of these paths."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def repository(folder: Path, ignore: str) -> Path:
    """A git work tree that ignores something."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (folder / ".gitignore").write_text(ignore)
    return folder


def test_a_folder_without_git_gives_its_files_in_order_without_what_programs_make(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a/c.py", "a/b.ipynb")
    write(tmp_path, "__pycache__/a.pyc", "sub/.venv/lib/x.py", ".ipynb_checkpoints/a.ipynb", "odd/pyvenv.cfg")
    found = select(tmp_path)
    assert list(found.files) == ["a/b.ipynb", "a/c.py", "b.py"]
    assert found.size == 3 * 6
    assert set(found.left_out) == {"__pycache__/", "sub/.venv/", ".ipynb_checkpoints/", "odd/"}


def test_git_decides_in_a_work_tree_and_what_it_ignores_is_listed(tmp_path: Path) -> None:
    folder = repository(tmp_path / "project", "data/\n*.log\n")
    write(folder, "a.py", "tracked.log", "b.log", "data/1.bin", "data/2.bin", "gone.py", "mine/a.py", "mine/a.log")
    subprocess.run(["git", "add", "--force", "tracked.log", "gone.py"], cwd=folder, check=True)
    (folder / "gone.py").unlink()
    found = select(folder)
    assert list(found.files) == [".gitignore", "a.py", "mine/a.py", "tracked.log"]
    assert found.left_out == dict.fromkeys(("b.log", "data/", "mine/a.log"), "git ignores it")
    assert found.leaves_out("data/new/file")
    assert not found.leaves_out("database.py")
    assert list(select(folder / "mine").files) == ["a.py"], "a part of it follows the rules above"
    assert ignored_by_git(folder, ["new.log", "new.py", "data/x", "tracked.log"]) == {"new.log", "data/x"}


def test_secrets_by_name_or_content_are_left_out_and_listed_first_and_code_is_not(tmp_path: Path) -> None:
    names = (
        ".env", ".env.prod", "conf/.netrc", "server.pem", "id_ed25519", ".aws/config", "kubeconfig", "Credentials.json"
    )  # fmt: skip
    for number, path in enumerate(names):
        found = select(write(tmp_path / str(number), "a.py", ".git-x/y.py", path))
        assert "a.py" in found.files
        assert path not in found.files
        assert describe_left_out(found).endswith("(looks like a secret)"), path
    for path in (".env.example", "id_rsa.pub", "secrets.py", "environment.py", "keys.py"):
        assert skipped(path) is None, path
    for text in (PRIVATE_KEY, f"aws_secret_access_key = {'a' * 40}\n", f"token = 'hf_{'A' * 34}'\n"):
        folder = write(write(tmp_path / "held", "a.py"), "notes.txt", text=text)
        assert select(folder).left_out == {"notes.txt": "looks like a secret"}, text


def test_a_folder_beyond_the_limit_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    for name, size in (("model.pt", 2 * 2**30), ("small.bin", 2**20)):
        with (tmp_path / name).open("wb") as opened:
            opened.truncate(size)
    with pytest.raises(RefusedError, match=r"2049\.0 MiB, more than 100") as refused:
        select(tmp_path)
    assert "\n  2048.0 MiB model.pt\n  1.0 MiB small.bin" in str(refused.value)


def test_folders_that_are_missing_or_empty_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such folder"):
        select(tmp_path / "absent")
    with pytest.raises(SettingsError, match="has no files"):
        require_files(tmp_path, select(tmp_path))
    with pytest.raises(SettingsError, match=r"everything in it is left out \(.env \(looks like a secret\)"):
        require_files(tmp_path, select(write(tmp_path, ".env")))


def test_a_link_out_of_the_folder_is_refused_and_one_inside_and_a_pipe_are_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", "a.py", "sub/b.py")
    (folder / "again.py").symlink_to("a.py")
    (folder / "other").symlink_to("sub")
    os.mkfifo(folder / "pipe")
    found = select(folder)
    assert list(found.files) == ["a.py", "sub/b.py"]
    assert set(found.left_out) == {"again.py", "other", "pipe"}
    assert found.left_out["pipe"] == "not a file"
    (folder / "passwords").symlink_to("/etc/passwd")
    with pytest.raises(SettingsError, match="passwords of the code folder links to /etc/passwd"):
        select(folder)


def test_names_that_cannot_be_copied_and_paths_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    for number, name in enumerate((b"a\nb.py", b"a\\b.py", b"\xff.py")):
        folder = tmp_path / str(number)
        folder.mkdir()
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).touch()
        with pytest.raises(SettingsError, match="file name"):
            select(folder)
    for path in ("../a", "/etc/passwd", "a/../../b", "a//b", "", ".", "a/", "./a", "x" * 2000):
        with pytest.raises(SettingsError):
            check_path(path)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\\", exclude_categories=["C"]), min_size=1)
                .filter(lambda part: part not in {".", ".."} and len(part) < 50), min_size=1, max_size=4))  # fmt: skip
def test_every_other_path_stays_inside(parts: list[str]) -> None:
    path = "/".join(parts)
    check_path(path)
    assert os.path.normpath(f"/folder/{path}").startswith("/folder/")


def test_modules_that_shadow_others_are_refused_and_those_in_packages_may_have_any_name() -> None:
    for path in ("random.py", "training/model.py", "typing/__init__.py"):
        with pytest.raises(SettingsError, match=path.split("/", maxsplit=1)[0]):
            check_modules(["a.py", path])
    check_modules(["mine/random.py", "model.py", "data/random.txt", "random.txt"])
