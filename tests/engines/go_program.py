"""Small Go programs that say what a library does which Kubernetes is built with."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engines.report_table import ran, skipped


def answer_of(source: str, given: object, *, requires: Sequence[str], sums: str, folder: Path) -> Any:  # noqa: ANN401 - JSON
    """Run a program that reads JSON from its standard input; returns the JSON that it prints. Skips without Go.

    Args:
        source: the program.
        given: what it reads.
        requires: modules with their versions, the library first, e.g. `github.com/robfig/cron/v3 v3.0.1`.
        sums: the lines of go.sum.
        folder: an empty folder.
    """
    name = requires[0].partition(" ")[0]
    if shutil.which("go") is None:
        skipped(name, "no go on PATH", "install Go")
    needed = "".join(f"require {one}\n" for one in requires)
    for file, text in (("go.mod", f"module program\n\ngo 1.22\n\n{needed}"), ("go.sum", sums), ("main.go", source)):
        (folder / file).write_text(text, encoding="utf-8")
    home = pwd.getpwuid(os.getuid()).pw_dir  # whose Go caches outlive the session's temporary home
    answered = subprocess.run(
        ["go", "run", "."],
        cwd=folder,
        env={**os.environ, "HOME": home, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr
    ran(name)
    return json.loads(answered.stdout)
