"""Commands on a cluster, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.engines.kubernetes_operators import Operated
from tests.training.cli.command import ROOT
from tests.training.cluster.team_cluster import outputs_file, reached_with


def options_on(queued: Operated, folder: Path) -> list[str]:
    """Options of a command for the team research; the outputs are written to a folder."""
    return [*options_with(queued.plane.kubeconfig, folder), "--team", "research"]


def options_with(kubeconfig: Path, folder: Path) -> list[str]:
    """Options of a command that reaches the cluster of a kubeconfig as the stack dev; the outputs are written to a folder."""
    file = outputs_file(folder, cluster=reached_with(kubeconfig))
    return ["--env", "dev", "--outputs", str(file), "--kubeconfig", str(kubeconfig)]


def interruptible(*arguments: str) -> list[str]:
    """The command line of a command of `python -m training` that SIGINT interrupts, also where this process ignores it."""
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "import sys; from training.cli import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-u", "-c", program, *arguments]


@contextmanager
def command(
    *arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command in which SIGINT is not ignored."""
    with subprocess.Popen(
        interruptible(*arguments), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(process: subprocess.Popen[str]) -> IO[str]:
    """What a process writes, as it does."""
    assert process.stdout is not None
    return process.stdout


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read lines until one contains a text; returns that line."""
    seen = []
    for line in output_of(process):
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"ended without {text!r}: {''.join(seen)}")
