"""A closed terminal and a second Ctrl-C end a real search; the same command continues it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from observability.runlog import Restored, RunEnded, read_all, select
from tests.distribution import RAY
from tests.training.launch.driver import ROOT
from tests.training.launch.terminal import on_terminal
from tests.tune.search_driver import NAME, SearchDriver, assert_counted_once, search_arguments, search_of
from training.errors import ExitStatus
from tune.events import SearchEnded, SearchLogReader, SearchNotice, TrialReported
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

AT_ONCE = 20.0
"""Seconds; the trials of an interrupted search are given 300 to save."""


def endings(search: Path) -> list[tuple[str, str]]:
    """Status and reason of the end of each driver that logged one."""
    events = SearchLogReader(search).read_new()
    return [(event.status, event.reason) for event in events if isinstance(event, SearchEnded)]


@pytest.mark.long
def test_a_closed_terminal_saves_the_trials_and_a_second_ctrl_c_does_not_wait_for_them(tmp_path: Path) -> None:
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [0.001, 0.01]}},
        epochs=30,
        shared={"checkpoint": {"every_steps": 5}},
        algorithm="grid",
    )
    search = tmp_path / NAME
    command = [sys.executable, "-m", "tune", *search_arguments(tmp_path, settings)]
    with on_terminal(command, folder=ROOT) as terminal:
        terminal.wait_until(lambda: any(trial.reports for trial in SearchHistory.read(search).trials.values()))
        terminal.close()
        os.killpg(terminal.process.pid, signal.SIGHUP)  # as a shell does; the kernel has sent one already
        assert terminal.end() == ExitStatus.INTERRUPTED
    assert endings(search) == [("interrupted", "stopped by SIGHUP")]
    running = [name for name, trial in SearchHistory.read(search).trials.items() if trial.ended is None]
    assert running
    saved = {name: select(read_all(search / "trials" / name), RunEnded)[-1] for name in running}
    assert {ended.status for ended in saved.values()} == {"interrupted"}

    with SearchDriver(tmp_path, settings) as driver:
        assert driver.wait_for(lambda event: isinstance(event, TrialReported))
        driver.signal_ranks("t002", signal.SIGSTOP)  # it hangs, so the first Ctrl-C does not end the search
        driver.interrupt()
        assert driver.wait_for(lambda event: isinstance(event, SearchNotice))
        driver.interrupt()
        ended = driver.end(timeout=AT_ONCE)
        driver.wait_for_descendants(timeout=AT_ONCE)
    assert ended.status == ExitStatus.INTERRUPTED, ended.out + ended.err
    assert "Traceback" not in ended.err
    assert "a second one stops immediately" in ended.out
    assert f"make tune NAME={search} continues them" in ended.err
    assert endings(search)[-1] == ("interrupted", "stopped without saving the running trials")

    with SearchDriver(tmp_path, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(search, trials=2)
    for name, trial in SearchHistory.read(search).trials.items():
        assert [report.epoch for report in trial.reports] == list(range(1, 31))
        if name in saved:  # it went on in the step after its last one
            assert select(read_all(search / "trials" / name), Restored)[0].step == saved[name].step
