"""Copies of the working tree in which commands may write what they like."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.com")


def copy_working_tree(root: Path) -> None:
    """Copy every file that git does not ignore, committed or not, to a new folder, and use this checkout's environment there."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    (root / ".venv").symlink_to(ROOT / ".venv")


def commit_all(root: Path) -> None:
    """Make a repository of a folder, with all of it in one commit."""
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Checkout")):
        subprocess.run(["git", "-C", str(root), *_IDENTITY, *command], check=True)
