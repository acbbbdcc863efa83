"""The life of a search with real Ray: its driver is killed or interrupted, its trials fail, its disk is full, its population is copied."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from observability.runlog import Restored, RunEnded, RunStarted, read_all, select
from tests.distribution import RAY
from tests.engines.small_disk import small_disk
from tests.training.launch.driver import ROOT
from tests.training.launch.terminal import on_terminal
from tests.training.runs import run_alone
from tests.tune.search_driver import (
    NAME,
    SearchDriver,
    assert_counted_once,
    drivers,
    fingerprints,
    run_search,
    search_arguments,
    search_of,
)
from training.config.load import load_settings
from training.errors import ExitStatus
from tune.events import SearchEnded, SearchLogReader, SearchNotice, TrialExploited, TrialReported
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

FREQUENT = {"checkpoint": {"every_steps": 5}}


def trial_folder(search: Path, name: str) -> Path:
    return search / "trials" / name


def ended_trials(search: Path) -> dict[str, dict[str, str]]:
    """The trials that have ended, with the fingerprints of their folders."""
    trials = SearchHistory.read(search).trials
    return {name: fingerprints(trial_folder(search, name)) for name, trial in trials.items() if trial.ended}


@pytest.mark.extended
def test_a_search_whose_driver_is_killed_twice_counts_every_trial_once(tmp_path: Path) -> None:
    """It ends with the trials that it would have had, and the best one has the weights of a run of its own."""
    draw = random.Random(20)
    settings = search_of(
        epochs=12,
        shared=FREQUENT,
        algorithm="random",
        trials=6,
        scheduler={"name": "asha", "grace_epochs": 4, "reduction_factor": 2},
    )
    search = tmp_path / "s"
    for number in (1, 2):
        with SearchDriver(tmp_path, settings) as driver:
            for _ in range(draw.randrange(2, 5)):
                assert driver.wait_for(lambda event: isinstance(event, TrialReported))
            time.sleep(draw.random() / 4)  # anywhere between two evaluations
            driver.kill()
            driver.wait_for_descendants()
        assert drivers(search) == number
        before = ended_trials(search)
        known = SearchHistory.read(search).trials
        interrupted = [name for name, trial in known.items() if trial.ended is None and trial.reports]
        values = {name: trial.values for name, trial in known.items()}
    ended = run_search(tmp_path, settings)
    assert_counted_once(search, trials=6)
    trials = SearchHistory.read(search).trials
    assert {name: trials[name].values for name in values} == values
    for name, files in before.items():
        assert fingerprints(trial_folder(search, name)) == files
    assert interrupted
    for name in interrupted:
        events = read_all(trial_folder(search, name))
        starts = [index for index, event in enumerate(events) if isinstance(event, RunStarted)]
        if trials[name].epoch > known[name].epoch:
            assert select(events[starts[-1] :], Restored), name
    best = SearchHistory.read(search).ranked()[0]
    assert f"make train CONFIG={search}/best.yaml NAME=s-{best.id}\n" in ended.out
    alone = run_alone(load_settings([search / "best.yaml"], ["scale.launcher=plain"]), tmp_path / "alone")
    assert best.ended is not None
    assert best.ended.weights_sha256 == alone.weights_sha256


AT_ONCE = 20.0

"""Seconds; the trials of an interrupted search are given 300 to save."""


def endings(search: Path) -> list[tuple[str, str]]:
    """Status and reason of the end of each driver that logged one."""
    events = SearchLogReader(search).read_new()
    return [(event.status, event.reason) for event in events if isinstance(event, SearchEnded)]


@pytest.mark.extended
def test_a_closed_terminal_saves_the_trials_and_a_second_ctrl_c_does_not_wait_for_them(tmp_path: Path) -> None:
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [0.001, 0.01]}},
        epochs=30,
        shared=FREQUENT,
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

    run_search(tmp_path, settings)
    assert_counted_once(search, trials=2)
    for name, trial in SearchHistory.read(search).trials.items():
        assert [report.epoch for report in trial.reports] == list(range(1, 31))
        if name in saved:  # it went on in the step after its last one
            assert select(read_all(search / "trials" / name), Restored)[0].step == saved[name].step


def fill(path: Path) -> None:
    """Take all the space there is."""
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.extended
def test_a_full_disk_ends_a_search_with_a_remedy_and_it_continues(tmp_path: Path) -> None:
    settings = search_of(
        epochs=40,
        shared=FREQUENT,
        algorithm="random",
        trials=2,
        concurrency=1,
    )
    with small_disk(tmp_path / "disk", size="300m") as disk:  # slightly more than a search needs to start
        root = disk / "searches"
        with SearchDriver(root, settings) as driver:
            assert driver.wait_for(lambda event: isinstance(event, TrialReported))
            fill(disk / "ballast")
            ended = driver.end()
            driver.wait_for_descendants()
        assert ended.status == ExitStatus.FAILED, ended.out + ended.err
        assert "No space left on device" in ended.err
        assert f"remedy: free disk space; make tune NAME={root / 's'} continues the search" in ended.err
        assert "Traceback" not in ended.err
        assert "Traceback" not in (root / "s" / "search.jsonl").read_text()
        (disk / "ballast").unlink()
        with SearchDriver(root, settings) as driver:
            ended = driver.end()
            driver.wait_for_descendants()
        assert ended.status == ExitStatus.DONE, ended.out + ended.err
        assert_counted_once(root / "s", trials=2)


@pytest.mark.extended
def test_a_population_whose_driver_is_killed_at_an_exploit_makes_it_once(tmp_path: Path) -> None:
    """The clone begins with the donor's weights, although the driver that decided it was killed before it could."""
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [0.01, 0.003, 0.02, 1e-6]}},
        epochs=4,
        algorithm="grid",
        trials=4,
        scheduler={"name": "pbt", "every_epochs": 2, "quantile": 0.25},
    )
    with SearchDriver(tmp_path, settings) as driver:
        assert driver.wait_for(lambda event: isinstance(event, TrialExploited))
        driver.kill()
        driver.wait_for_descendants()
    run_search(tmp_path, settings)
    search = driver.run
    assert_counted_once(search, trials=4)
    history = SearchHistory.read(search)
    assert {(trial.status, trial.epoch) for trial in history.trials.values()} == {("done", 4)}
    exploits = [event for event in SearchLogReader(search).read_new() if isinstance(event, TrialExploited)]
    assert len({(one.trial, one.epoch) for one in exploits}) == len(exploits)
    for exploit in exploits:
        restored = select(read_all(search / "trials" / exploit.trial), Restored)
        after = next(event for event in restored if event.time > exploit.time)
        assert (after.step, after.weights_sha256) == (exploit.step, exploit.weights_sha256)
