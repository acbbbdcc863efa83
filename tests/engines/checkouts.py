"""Copies of the working tree in which commands may write what they like."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.processes import run_command

ROOT = Path(__file__).resolve().parents[2]
_IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.com")


def project_files() -> tuple[str, ...]:
    """Files that are tracked, or that `git add` would track, sorted."""
    listed = run_command(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    assert listed.returncode == 0, listed.stderr
    return tuple(sorted({name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}))


def copy_working_tree(root: Path) -> None:
    """Copy every file that git does not ignore, committed or not, to a new folder, and use this checkout's environment there."""
    for name in project_files():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    (root / ".venv").symlink_to(ROOT / ".venv")


def commit_all(root: Path) -> None:
    """Make a repository of a folder, with all of it in one commit."""
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Checkout")):
        subprocess.run(["git", "-C", str(root), *_IDENTITY, *command], check=True)
