"""SIGKILL or a crash of the driver: its ranks die with it, its monitor ends, and the resumed run ends in the weights of another."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from observability.runlog import Event, Phase, Restored, RunEnded, read_all, select
from tests.distribution import RAY
from tests.engines import report_table
from tests.engines.ray_cluster import short_folder
from tests.training.launch.driver import ROOT, is_commit, train
from tests.training.launch.ranks import run_world
from tests.training.launch.terminal import on_terminal
from tests.training.objectives.recipes import RECIPES, recipe
from tests.training.runs import run_alone, small_settings
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings
from training.rundir import RunDirectory

Moment = tuple[Callable[[Event], bool], float]
"""An event to wait for, and the longest random delay after it, in seconds."""

EPOCHS = 12
AS_SHIPPED = {"RAY_AUTH_MODE": "token"}
"""A driver protects its local Ray cluster with a token; the clusters that tests share have none."""

EXIT_SECONDS = 30.0
"""Longest time, in seconds, until everything that the killed driver had started has exited."""


def is_phase(name: str, *, of: str = "rank 0") -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Phase) and (event.name, event.process) == (name, of)


RAY_STARTING = (is_phase("ray_start", of="driver"), 3.0)
WORKERS_STARTING = (is_phase("workers_start", of="driver"), 2.0)
PREPARING = (is_phase("data"), 0.1)
TRAINING = (is_commit, 0.15)


def kill_at(moments: Sequence[Moment], chosen: TrainingSettings, root: Path, *, seed: int) -> Path:
    """Start a run, kill its driver at each moment in turn, then let it finish; returns the run's folder."""
    delays = random.Random(seed)
    for has_happened, max_delay in moments:
        with train(chosen, root, environment=AS_SHIPPED) as driver:
            assert driver.wait_for(has_happened), driver.end()
            time.sleep(delays.uniform(0, max_delay))
            driver.kill()
            driver.wait_for_descendants(timeout=EXIT_SECONDS)
    with train(chosen, root, environment=AS_SHIPPED) as driver:
        ended = driver.end()
        assert ended.status == 0, ended.err
        return driver.run


def test_a_run_whose_driver_crashes_and_is_killed_ends_in_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    chosen, root = recipe(RECIPES[0], launcher="plain"), tmp_path / "killed"
    with train(chosen, root) as driver:
        assert driver.wait_for(is_commit), driver.end()
        driver.process.send_signal(signal.SIGSEGV)  # as the kernel does when a compiled library accesses invalid memory
        ended = driver.end()
        driver.wait_for_descendants(timeout=EXIT_SECONDS)
    assert ended.status == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.err
    assert "supervisor.py" in ended.err
    run = kill_at([PREPARING], chosen, root, seed=4)
    weights = select(read_all(run), RunEnded)[-1].weights_sha256
    assert weights == run_alone(chosen, tmp_path / "reference").weights_sha256


@pytest.mark.extended
def test_the_monitor_of_a_killed_run_says_so_and_ends_and_one_of_a_resumed_run_does_not(tmp_path: Path) -> None:
    chosen = small_settings(loop={"epochs": 300}, schedule={"name": "constant"})
    command = [sys.executable, "-m", "training", "monitor", str(tmp_path / "runs" / "run")]
    # The second driver resumes, and the monitor starts while the log has no more than the first one's.
    for _ in range(2):
        with train(chosen, tmp_path) as driver:
            while not RunDirectory(driver.run).is_running():
                assert driver.process.poll() is None, driver.end()
                time.sleep(0.01)
            with on_terminal(command, folder=ROOT) as monitor:
                monitor.wait_until(lambda: b"running" in monitor.output)
                assert driver.wait_for(is_commit)
                monitor.wait_until(lambda: b"samples/s" in monitor.output)
                assert monitor.process.poll() is None
                driver.kill()
                assert monitor.end() == 0
        shown = monitor.output.decode()
        assert "\x1b[31mkilled\x1b[0m" in shown
        cause = "cause: the driver of run run ended without a message: it was killed, or its machine was lost"
        assert f"run run: killed\r\n{cause}\r\n  remedy: " in shown
        assert shown.endswith(f"\r\n  resume: make resume NAME={driver.run}\r\n")


@pytest.fixture
def short_path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.mark.extended
@pytest.mark.xdist_group(RAY)
def test_a_ray_run_interrupted_and_killed_ends_like_an_uninterrupted_one(short_path: Path, tmp_path: Path) -> None:
    chosen = small_settings(loop={"epochs": EPOCHS, "log_sample_ids": True}, scale={"launcher": "ray", "workers": 2})
    with train(chosen, short_path, environment=AS_SHIPPED) as driver:
        assert driver.wait_for(is_commit)
        driver.interrupt()
        ended = driver.end()
        assert ended.status == 130, ended.err
        assert f"make resume NAME={driver.run}" in ended.out
        driver.wait_for_descendants()
    stopped = select(read_all(driver.run), RunEnded)[-1]
    assert stopped.status == "interrupted"
    run = kill_at([RAY_STARTING, WORKERS_STARTING, TRAINING], chosen, short_path, seed=3)
    report_table.ran("Ray cluster")
    assert select(read_all(run), Restored)[0].step == stopped.step
    reference = run_world(chosen, tmp_path / "reference")
    assert select(read_all(run), RunEnded)[-1].weights_sha256 == reference.weights_sha256
    assert ledger.consumed_ids(run) == {epoch: list(range(1293)) for epoch in range(1, EPOCHS + 1)}
