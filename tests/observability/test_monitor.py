"""The monitor of a run, by what it writes."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from observability.monitor import watch
from observability.runlog import FILE_NAME, RunEnded, RunLogWriter
from tests.observability.sample_run import NAME, SampleRun, finished_run, restarted_run, write_run


@pytest.fixture(autouse=True)
def _a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def once(run: Path) -> str:
    """One picture, as a pipe gets it."""
    stream = io.StringIO()
    watch(run, once=True, stream=stream)
    return stream.getvalue()


def test_a_picture_holds_what_matters_of_a_finished_run(tmp_path: Path) -> None:
    picture = once(write_run(tmp_path, restarted_run()))
    assert re.search(rf"^{NAME}  done  21\.0 s$", picture, re.MULTILINE)
    assert "step 230/230  epoch 10/10" in picture
    assert "loss 0.0405" in picture
    assert "test             97.6 %" in picture
    assert "4, the newest at step 200 (344.8 KiB); longest stall 1.9 ms" in picture
    assert "2, 31 steps lost" in picture
    assert "killed by signal 9" in picture


def test_the_split_of_a_steps_time_adds_up(tmp_path: Path) -> None:
    picture = once(write_run(tmp_path, finished_run()))
    shares = re.findall(r"■ (\w+) (\d+)%", picture)
    assert [name for name, _ in shares] == ["data", "forward", "backward", "optimizer", "other"], "0 % is left out"
    assert 97 <= sum(int(share) for _, share in shares) <= 103


def test_before_training_the_start_up_is_shown(tmp_path: Path) -> None:
    picture = once(write_run(tmp_path, SampleRun().start().events))
    assert re.search(r"starting Ray +2\.9 s", picture)


def test_a_run_that_is_ready_but_has_no_step_yet_is_shown(tmp_path: Path) -> None:
    assert "step 0/230" in once(write_run(tmp_path, SampleRun().start().train(1, 0).events))


def test_a_run_that_has_gone_silent_says_for_how_long(tmp_path: Path) -> None:
    assert "nothing heard for" in once(write_run(tmp_path, SampleRun().start().train(1, 5).events))


def test_a_folder_without_a_log_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path} is not the folder of a run: it holds no {FILE_NAME}"):
        watch(tmp_path)


def test_the_watch_ends_when_the_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observability.monitor._POLL_SECONDS", 0.02)
    write_run(tmp_path, SampleRun().start().train(1, 40).events)
    stream = io.StringIO()
    watching = threading.Thread(target=watch, args=(tmp_path,), kwargs={"stream": stream})
    watching.start()
    time.sleep(0.1)
    assert watching.is_alive()
    with RunLogWriter(tmp_path) as log:
        log.write(RunEnded(status="interrupted", step=40))
    watching.join(timeout=60)
    assert not watching.is_alive()
    assert "interrupted" in stream.getvalue()


def test_ctrl_c_ends_the_watch_and_leaves_the_run_alone(tmp_path: Path) -> None:
    write_run(tmp_path, SampleRun().start().train(1, 40).events)
    before = (tmp_path / FILE_NAME).read_bytes()
    terminal, screen = pty.openpty()
    program = "import sys, pathlib; from observability.monitor import watch; watch(pathlib.Path(sys.argv[1]))"
    watching = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=screen, stderr=screen)
    os.close(screen)
    shown = b""
    while b"40" not in shown:  # it draws the newest step, so it is past its imports and inside the watch
        shown += os.read(terminal, 65536)
    watching.send_signal(signal.SIGINT)
    while chunk := _read(terminal):
        shown += chunk
    os.close(terminal)
    assert watching.wait(timeout=60) == 0
    assert b"Traceback" not in shown
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other side is closed
        return b""
