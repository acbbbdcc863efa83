"""Runs a command as a process and records its imports."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from tests.processes import run_command
from training.cli import main

ROOT = Path(__file__).resolve().parents[3]
HEAVY = frozenset({"torch", "ray", "mlflow", "numpy", "sklearn", "matplotlib", "pandas", "scipy", "optuna"})

# Stays the last line of the error stream, whatever the command prints.
_PROGRAM = """
import json, sys
from importlib import import_module
status = import_module(sys.argv[1]).main(sys.argv[2:])
print(json.dumps([int(status), list(sys.modules)]), file=sys.stderr)
"""


@dataclass(frozen=True)
class Answer:
    """The result of a command: exit status, streams, and the heavy packages it imported."""

    status: int
    out: str
    err: str
    heavy: frozenset[str]


def ask_here(*arguments: str) -> Answer:
    """Run `python -m training` with these arguments in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    return Answer(status=int(status), out=out.getvalue(), err=err.getvalue(), heavy=frozenset())


def assert_refused(status: int, said: str, *arguments: str) -> None:
    """Check that a command refuses its arguments with a status and part of an error."""
    answer = ask_here(*arguments)
    assert (answer.status, said in answer.err) == (status, True), (arguments, answer.err)


def ask(*arguments: str, cwd: Path = ROOT, program: str = "training.cli") -> Answer:
    """Run `python -m training` with these arguments, or the `main` of another program."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    ended = run_command([sys.executable, "-c", _PROGRAM, program, *arguments], cwd=cwd, env=environment, seconds=120)
    err, _, last = ended.stderr.rstrip("\n").rpartition("\n")
    status, modules = json.loads(last)
    return Answer(status=status, out=ended.stdout, err=err, heavy=HEAVY.intersection(modules))
