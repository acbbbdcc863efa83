"""The delivery state and its lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from training.tracking.state import TrackingState, delivery_lock

HOLD = """
import sys
import threading
from pathlib import Path
from training.tracking.state import delivery_lock
with delivery_lock(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_saved_state_loads_equal_and_two_runs_have_different_keys(tmp_path: Path) -> None:
    assert TrackingState.load(tmp_path) is None
    state = TrackingState(uri="http://host", run_id="r", offset=7, newest_step={"train": 3}, status="RUNNING")
    state.save(tmp_path)
    assert TrackingState.load(tmp_path) == state
    assert TrackingState(uri="x").run_key != TrackingState(uri="x").run_key


def test_an_interrupted_save_keeps_the_previous_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    state = TrackingState(uri="http://host", offset=7)
    state.save(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        TrackingState(uri="http://host", offset=8).save(tmp_path)
    assert TrackingState.load(tmp_path) == state


def test_one_process_at_a_time_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with delivery_lock(tmp_path, wait=False) as is_acquired:
            assert not is_acquired
        threading.Timer(0.1, other.kill).start()
        with delivery_lock(tmp_path, wait=True) as is_acquired:
            assert is_acquired
