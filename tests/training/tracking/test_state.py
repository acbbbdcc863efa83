"""The cursor and its lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from training.tracking.state import TrackingState, delivering

HOLD = """
import sys
from pathlib import Path
from training.tracking.state import delivering
with delivering(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_nobody_delivered_has_no_state(tmp_path: Path) -> None:
    assert TrackingState.load(tmp_path) is None


def test_a_state_is_read_back_equal(tmp_path: Path) -> None:
    state = TrackingState(uri="http://host", run_id="r", offset=7, newest_step={"train": 3}, status="RUNNING")
    state.save(tmp_path)
    assert TrackingState.load(tmp_path) == state


def test_a_write_that_was_cut_off_leaves_the_state_before_it(tmp_path: Path) -> None:
    state = TrackingState(uri="http://host", offset=7)
    state.save(tmp_path)
    (tmp_path / "tracking.json.partial").write_text('{"uri": "htt')
    assert TrackingState.load(tmp_path) == state


def test_two_runs_have_different_keys() -> None:
    assert TrackingState(uri="x").run_key != TrackingState(uri="x").run_key


def test_a_run_is_delivered_by_one_process_at_a_time_and_by_the_next_when_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with delivering(tmp_path, wait=False) as is_ours:
            assert not is_ours
        other.kill()
    with delivering(tmp_path, wait=False) as is_ours:
        assert is_ours
