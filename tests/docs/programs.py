"""Programs that check files, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.docs.workflows import ROOT
from tests.engines.report_table import ran, skipped


def check_with(program: str, arguments: Sequence[str], *, enable: str) -> str:
    """Run a checker in the repository; returns what it complains of, empty if nothing. Skips without the program.

    Args:
        program: its name, on PATH or in the environment of the tests.
        arguments: its arguments.
        enable: the command that installs it.
    """
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        skipped(program, f"no {program} on PATH", enable)
    ended = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    ran(program)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
