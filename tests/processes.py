"""Commands that tests run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, whatever its exit status will be; it reads what is `given`, and its output is text."""
    return subprocess.run(
        command, cwd=cwd, env=env, input=given, capture_output=True, text=True, check=False, timeout=seconds
    )
