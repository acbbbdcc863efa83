"""What `make` would run, without running it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run make in the repository."""
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def command(*arguments: str, environment: dict[str, str] | None = None) -> list[str]:
    """The last command that make would run, in words, without the interpreter."""
    planned = make("--dry-run", *arguments, environment=environment)
    assert planned.returncode == 0, planned.stderr
    return last_command(planned)


def last_command(planned: subprocess.CompletedProcess[str]) -> list[str]:
    """The last command of a dry run of make, in words, without the interpreter."""
    return shlex.split(planned.stdout.splitlines()[-1])[1:]
