"""Real commands in process groups."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from training.script.process import CommandProcess

_SECONDS = 60.0

_SAVES = """
import pathlib, signal, sys, time
def save(number, frame):
    time.sleep(1)
    pathlib.Path("saved").write_text("state")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready")
time.sleep(600)
"""


class Output:
    """The lines of a command."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def take(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait_for(self, holds: Callable[[list[str]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.lines), timeout=_SECONDS), self.lines


def _start(text: str, folder: Path) -> tuple[CommandProcess, Output]:
    output = Output()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PY": sys.executable}
    return CommandProcess(text, environment=environment, folder=folder, on_line=output.take), output


def test_the_exit_status_is_that_of_the_shell(tmp_path: Path) -> None:
    for text, status in (
        ("true", 0),
        ("exit 3", 3),
        ("no-such-program", 127),
        ("kill -TERM $$", 143),
        ("$PY -c 'import os; os.kill(os.getpid(), 9)'", 137),
        ("$PY -c 'import os; os.kill(os.getpid(), 9)'; exit $?", 137),
    ):
        assert _start(text, tmp_path)[0].wait(_SECONDS) == status, text


def test_both_streams_come_line_by_line_with_progress_bars_and_broken_text(tmp_path: Path) -> None:
    command, output = _start(r"printf '1 %%\r2 %%\nhalf'; sleep 0.1; printf '\xff\n' >&2; printf end", tmp_path)
    assert command.wait(_SECONDS) == 0
    assert output.lines == ["1 %", "2 %", "half\N{REPLACEMENT CHARACTER}", "end"]


def test_a_line_comes_while_the_command_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command, output = _start("echo first; read -r line < pipe", tmp_path)
    output.wait_for(lambda lines: lines == ["first"])
    assert command.status is None
    command.kill()
    assert command.wait(_SECONDS) == 137


@pytest.mark.parametrize("text", ["$PY saves.py", "true && $PY saves.py; true", "$PY saves.py & wait"])
def test_a_command_that_is_asked_to_end_may_save(text: str, tmp_path: Path) -> None:
    """Also when its shell dies at once of the same signal."""
    (tmp_path / "saves.py").write_text(_SAVES)
    command, output = _start(text, tmp_path)
    output.wait_for(lambda lines: lines == ["ready"])
    command.terminate()
    assert command.wait(_SECONDS) in {0, 143}
    assert (tmp_path / "saved").read_text() == "state"


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command, output = _start("sleep 600 & echo $!; read -r line < pipe; exit 5", tmp_path)
    output.wait_for(lambda lines: len(lines) == 1)
    left_behind = psutil.Process(int(output.lines[0]))
    (tmp_path / "pipe").write_text("go\n")
    assert command.wait(_SECONDS) == 5
    assert psutil.wait_procs([left_behind], timeout=_SECONDS)[1] == []


def test_a_killed_command_takes_processes_in_groups_of_their_own_with_it(tmp_path: Path) -> None:
    command, output = _start("trap '' TERM; setsid sleep 600 & echo $!; while true; do sleep 1; done", tmp_path)
    output.wait_for(lambda lines: len(lines) == 1)
    child = psutil.Process(int(output.lines[0]))
    command.terminate()
    command.kill()
    assert command.wait(_SECONDS) == 128 + signal.SIGKILL
    assert psutil.wait_procs([child], timeout=_SECONDS)[1] == []


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        _start("true", tmp_path / "gone")
