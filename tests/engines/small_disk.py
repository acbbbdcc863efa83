"""A file system of a given size."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import run_command


@contextmanager
def small_disk(directory: Path, *, size: str) -> Iterator[Path]:
    """Mount a tmpfs of `size` (tmpfs syntax) on `directory`; skips without the right to mount."""
    directory.mkdir()
    mounted = run_command(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)])
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs needs root: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
