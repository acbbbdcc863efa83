"""The output of the run monitor."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from observability.history import RunHistory, state_of
from observability.monitor import frame, watch
from observability.runlog import FILE_NAME, Event, FlopsCounted, RanksMeasured, RunEnded, RunLogWriter
from tests.observability.sample_run import NAME, SampleRun, finished_run, restarted_run, write_run


@pytest.fixture(autouse=True)
def _a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def once(run: Path, *, is_running: bool = False) -> str:
    """The output of one frame."""
    stream = io.StringIO()
    watch(run, is_running=lambda: is_running, once=True, stream=stream)
    return stream.getvalue()


def drawn(events: Sequence[Event], *, seconds_later: float = 0.0, is_running: bool = True) -> str:
    """The output of one frame, `seconds_later` after the last event."""
    history = RunHistory.from_events(events)
    state, now = state_of(history.ended, is_running=is_running), history.last_time + seconds_later
    stream = io.StringIO()
    Console(file=stream, width=100).print(frame(history, state=state, now=now, width=100))
    return stream.getvalue()


def test_the_view_of_a_finished_run_shows_its_results(tmp_path: Path) -> None:
    output = once(write_run(tmp_path / "restarted", restarted_run()))
    assert re.search(rf"^{NAME}  done  21\.0 s$", output, re.MULTILINE)
    for text in (
        "simple_cnn on digits, 2 workers (ray), global batch 64, fp32\n━━",
        "step 230/230  epoch 10/10",
        "0.0405 to 2.25",
        "loss 0.0405",
        "test             loss 0.0906, accuracy 97.6 %",
        "4, newest at step 200 (344.8 KiB), longest stall 1.9 ms",
        "2, 31 steps lost",
        "killed by signal 9",
    ):
        assert text in output
    plain = once(write_run(tmp_path / "plain", finished_run()))
    assert "■ data 8%  ■ forward 27%  ■ backward 52%  ■ optimizer 8%  ■ other 4%" in plain, "checkpoint 0 % is omitted"
    assert 95 <= plain.count("█") <= 97, "the bar fills the panel"


def test_flops_and_the_use_of_the_gpus_are_shown_where_they_are_known(tmp_path: Path) -> None:
    counted = FlopsCounted(per_sample=2e9, device="NVIDIA A10G", peak=140e12)
    ranks = RanksMeasured(
        step=230,
        communication_seconds=[0.5, 1.5],
        gpu_utilization=[0.97, 0.91, math.nan],
        gpu_allocated_bytes=[2**30, 3 * 2**30, 2**30],
        gpu_reserved_bytes=[2**30] * 3,
    )
    output = drawn([*finished_run(), counted, ranks])
    assert re.search(r"samples/s  7\.\d\d TFLOP/s  MFU 5\.\d %", output)
    assert "GPUs             91.0 % to 97.0 % in use, up to 3.0 GiB of tensors" in output


def test_a_run_shows_its_start_the_time_left_and_for_how_long_it_has_been_silent() -> None:
    assert re.search(r"starting Ray +2\.9 s", drawn(SampleRun().start().events))
    assert "step 0/230" in drawn(SampleRun().start().train(1, 0).events)
    assert "3,744 samples/s  0:02 left" in drawn(SampleRun().start().train(1, 115).events)
    assert "left" not in drawn(finished_run())
    events = SampleRun().start().train(1, 5).events
    assert "no events for" not in drawn(events, seconds_later=30)
    assert "no events for 31.0 s" in drawn(events, seconds_later=31)


def test_a_run_without_driver_and_end_was_killed_at_its_last_event(tmp_path: Path) -> None:
    cut = SampleRun().start().train(1, 115).events
    output = drawn(cut, seconds_later=3600, is_running=False)
    assert re.search(rf"^{NAME}  killed  \d+\.\d s$", output, re.MULTILINE)
    assert "left" not in output
    assert re.search(r"starting Ray +2\.9 s", drawn(SampleRun().start().events, seconds_later=9, is_running=False))
    write_run(tmp_path, cut)
    assert watch(tmp_path, is_running=lambda: False, stream=io.StringIO()) == "killed"


def test_a_run_is_watched_before_its_first_event(tmp_path: Path) -> None:
    for _ in range(2):
        assert once(tmp_path, is_running=True) == "no events yet: the driver starts\n"
        assert once(tmp_path) == "no events: the driver did not start the run\n"
        write_run(tmp_path, [])


def test_the_monitor_ends_when_the_driver_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observability.monitor._POLL_SECONDS", 0.02)
    write_run(tmp_path, SampleRun().start().train(1, 40).events)
    stream, is_over = io.StringIO(), threading.Event()
    arguments = {"is_running": lambda: not is_over.is_set(), "stream": stream}
    watching = threading.Thread(target=watch, args=(tmp_path,), kwargs=arguments)
    watching.start()
    time.sleep(0.1)
    with RunLogWriter(tmp_path) as log:
        log.write(RunEnded(status="interrupted", step=40))
    time.sleep(0.1)
    assert watching.is_alive(), "the driver writes the report, and sends the run to MLflow"
    is_over.set()
    watching.join(timeout=60)
    assert not watching.is_alive()
    assert "interrupted" in stream.getvalue()


def test_ctrl_c_ends_the_monitor_and_does_not_touch_the_run(tmp_path: Path) -> None:
    write_run(tmp_path, SampleRun().start().train(1, 40).events)
    before = (tmp_path / FILE_NAME).read_bytes()
    terminal, screen = pty.openpty()
    # A shell starts background jobs, and so perhaps these tests, with SIGINT ignored.
    program = "import pathlib, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program += "; from observability.monitor import watch; watch(pathlib.Path(sys.argv[1]), is_running=lambda: True)"
    watching = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=screen, stderr=screen)
    os.close(screen)
    shown = b""
    while b"40" not in shown:  # the newest step is drawn, so the monitor runs
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
    except OSError:  # Linux raises this if the other side is closed
        return b""
