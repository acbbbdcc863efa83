"""promtool, which checks rules and runs their unit tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.engines.report_table import ran, skipped

NAME = "promtool"


def promtool(*arguments: str | Path, folder: Path) -> str:
    """Run promtool in `folder` and return what it complains of; empty if nothing. Skips without the program.

    It is found by `$PROMTOOL`, or on PATH.
    """
    found = os.environ.get("PROMTOOL") or shutil.which(NAME)
    if found is None:
        skipped(NAME, "no promtool found", "apt-get install prometheus, or set PROMTOOL=/path/to/promtool")
    ended = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    ran(NAME)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
