"""Ctrl-C, SIGTERM and `stop`: the first commits and exits with 130, the second exits at once; no process remains."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from observability.runlog import CheckpointCommitted, Notice, Phase, Restored, RunEnded, read_all, select
from tests.training.launch.driver import Driver, is_commit, train
from tests.training.runs import run_alone, small_settings
from training.cli import main

pytestmark = pytest.mark.extended

LONG = small_settings(loop={"epochs": 200}, schedule={"name": "constant"})


def stop_command(driver: Driver) -> None:
    assert main(["stop", "run", "--root", str(driver.run.parent)]) == 0


def test_a_run_stopped_in_each_way_ends_like_an_uninterrupted_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # 20 CPU seconds: each way to stop needs a driver and a rank of its own.
    for stop in (Driver.terminate, stop_command, Driver.interrupt):
        with train(LONG, tmp_path) as driver:
            assert driver.wait_for(is_commit)
            stop(driver)
            ended = driver.end()
            driver.wait_for_descendants()
        assert ended.status == 130, ended.err
        assert f"make resume NAME={driver.run}" in ended.out
        events = read_all(driver.run)
        end = select(events, RunEnded)[-1]
        assert (end.status, end.step) == ("interrupted", select(events, CheckpointCommitted)[-1].step), stop
    shorter = ["--set", f"loop.max_steps={end.step + 30}"]
    assert main(["resume", "run", "--root", str(driver.run.parent), *shorter]) == 0
    assert f"resuming from step {end.step}" in capfd.readouterr().out
    events = read_all(driver.run)
    assert select(events, Restored)[-1].step == end.step
    whole = LONG.model_copy(update={"loop": LONG.loop.model_copy(update={"max_steps": end.step + 30})})
    assert select(events, RunEnded)[-1].weights_sha256 == run_alone(whole, tmp_path / "reference").weights_sha256


def test_a_second_ctrl_c_ends_the_run_without_waiting_for_the_step(tmp_path: Path) -> None:
    """The step hangs, so the first Ctrl-C cannot take effect."""
    trace = tmp_path / "stuck"
    options = {"step": 13, "rank": 0, "trace": str(trace)}
    with train(
        small_settings(model={"name": "tests.training.faults.models:stuck", "options": options}), tmp_path
    ) as driver:
        while not trace.exists():
            assert driver.process.poll() is None
            time.sleep(0.01)
        driver.interrupt()
        assert driver.wait_for(lambda event: isinstance(event, Notice))
        driver.interrupt()
        ended = driver.end()
        driver.wait_for_descendants()
    assert ended.status == 130
    end = select(read_all(driver.run), RunEnded)[-1]
    assert end.status == "interrupted"


def test_ctrl_c_during_the_start_stops_the_run_after_its_first_steps(tmp_path: Path) -> None:
    with train(LONG, tmp_path) as driver:
        assert driver.wait_for(lambda event: isinstance(event, Phase) and event.name == "workers_start")
        driver.interrupt()
        ended = driver.end()
    assert ended.status == 130, ended.err
    assert 1 <= select(read_all(driver.run), RunEnded)[-1].step <= 3
