"""promtool, which checks rules and runs their unit tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.lifecycle.sandbox.modules import PROMETHEUS
from tests.engines.built import find_program
from tests.engines.report_table import ran, skipped

NAME = "promtool"


def promtool(*arguments: str | Path, folder: Path) -> str:
    """Run promtool in `folder` and return what it complains of; empty if nothing. Skips without the program.

    It is found by `$PROMTOOL`, among the engines, or on PATH.
    """
    found = find_program(PROMETHEUS, NAME)
    if found is None:
        skipped(NAME, "no promtool found", "make engines, apt-get install prometheus, or set PROMTOOL=/path")
    ended = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    ran(NAME)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
