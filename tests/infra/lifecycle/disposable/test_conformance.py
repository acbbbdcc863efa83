"""The suite as a process of a command of the stack: signals let it delete its job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.lifecycle.disposable import conformance
from infra.spec.release_rules import ROOT
from tests.waiting import wait_until

PATIENCE = 120.0

SUITE = f"""#!{sys.executable}
import pathlib, signal, sys, time
folder = pathlib.Path(__file__).parent
folder.joinpath("options").write_text(" ".join(sys.argv[1:]))
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    (folder / "running").touch()
    while not (folder / "end").exists():
        time.sleep(0.05)
except KeyboardInterrupt:
    time.sleep(1)  # deletes its job; another signal would end that
    (folder / "deleted").touch()
    sys.exit(130)
sys.exit(int((folder / "end").read_text()))
"""
"""What the command does about signals; it ends with the status in a file."""

CALLER = """
import signal, sys
from infra.lifecycle.disposable import conformance
signal.signal(signal.SIGINT, signal.default_int_handler)
conformance.sys.executable = sys.argv[1]
conformance._GRACE_SECONDS = float(sys.argv[2])
try:
    sys.exit(conformance.run_conformance("dev", "--group", "a10g"))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A program in place of Python, which is the suite."""
    program = tmp_path / "python"
    program.write_text(SUITE)
    program.chmod(0o755)
    return program


@pytest.fixture
def caller(suite: Path) -> Iterator[Callable[[float], subprocess.Popen[bytes]]]:
    """Starts a command that runs the suite, in a process group of its own as a shell does; waits until the suite runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(grace_seconds: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CALLER, str(suite), str(grace_seconds)]
        started.append(subprocess.Popen(command, cwd=ROOT, process_group=0))
        wait_until(suite.with_name("running").exists, seconds=PATIENCE)
        return started[-1]

    yield start
    suite.with_name("end").write_text("0")
    for one in started:
        one.kill()
        one.wait()


def test_the_status_of_the_suite_is_that_of_the_step(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(suite))
    for status in (0, 3):
        suite.with_name("end").write_text(str(status))
        assert conformance.run_conformance("dev", "--group", "a10g") == status
    assert suite.with_name("options").read_text() == "-m training conformance --env dev --group a10g"
    suite.write_text("#!/bin/sh\nkill -KILL $$\n")
    assert conformance.run_conformance("dev") == 1, "a suite that a signal ended has failed"


@pytest.mark.parametrize(
    ("send", "grace_seconds"),
    [
        pytest.param(lambda command: os.killpg(command.pid, signal.SIGINT), 60.0, id="Ctrl-C of a terminal"),
        pytest.param(lambda command: command.send_signal(signal.SIGTERM), 60.0, id="SIGTERM to the command alone"),
        pytest.param(lambda command: command.send_signal(signal.SIGINT), 0.1, id="SIGINT to the command alone"),
    ],
)
def test_a_signal_ends_the_suite_which_deletes_its_job(
    send: Callable[[subprocess.Popen[bytes]], None],
    grace_seconds: float,
    caller: Callable[[float], subprocess.Popen[bytes]],
    suite: Path,
) -> None:
    command = caller(grace_seconds)
    send(command)
    assert command.wait(PATIENCE) == 130
    assert suite.with_name("deleted").exists()
