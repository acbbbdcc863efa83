"""Server processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.processes import Process
from infra.spec.errors import PlatformError
from tests.waiting import wait_until

_PARENT = """
import sys, time
from pathlib import Path
from infra.lifecycle.sandbox.processes import Process
Process(["sh", "-c", "echo $$; exec sleep 1000"], log=Path(sys.argv[1]))
time.sleep(1000)
"""


def is_alive(process: int) -> bool:
    """Whether a process runs; a zombie does not count."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def await_number(log: Path) -> int:
    wait_until(lambda: log.exists() and log.read_text().strip() != "", seconds=60)
    return int(log.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a process when its parent ends")
def test_a_program_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(log)])
    program = await_number(log)
    assert is_alive(program)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not is_alive(program), seconds=60)


def test_a_program_that_exits_or_is_not_ready_in_time_is_an_error_with_its_output(tmp_path: Path) -> None:
    process = Process(["sh", "-c", "echo address in use; exit 3"], log=tmp_path / "log")
    with pytest.raises(PlatformError, match=r"sh exited with status 3 before it was ready:\n  address in use"):
        process.await_(lambda: False, seconds=60)
    log = tmp_path / "slow"
    process = Process(["sh", "-c", "echo $$; exec sleep 1000"], log=log)
    process.await_(lambda: log.read_text() != "", seconds=60)
    number = await_number(log)
    with pytest.raises(PlatformError, match=rf"not ready after 0 s:\n500\n  {number}"):
        process.await_(lambda: False, seconds=0.1, last_answer=lambda: "500\n")
    process.stop()
    assert not is_alive(number)
