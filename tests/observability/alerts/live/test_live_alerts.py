"""A fault that is injected into a running run raises its alert and no other, and the alert clears.

Two real ranks under torchrun, found and scraped by `make monitor-up` with a real Prometheus and all delivered rules, whose durations are
shortened (`faster_rules`). Only one fault brings two alerts: a stall that lasts. TrainingStalled says so after a quarter of an hour, and
after most of an hour the lost time is a page of its own, as for any loss of that size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from observability.alerts.training import RESTARTS_PER_HOUR
from observability.runlog import TrainingStarted
from tests.engines import report_table
from tests.observability.alerts.live.faulty import FAULTY_RANK
from tests.observability.alerts.live.monitored import Monitoring, monitoring
from tests.training.launch.driver import Driver, is_commit, train
from tests.training.runs import small_settings
from training.config.schema import TrainingSettings

pytestmark = [pytest.mark.long, pytest.mark.monitoring]


def settings() -> TrainingSettings:
    """Two ranks that make up to ten steps a second, for longer than a test lasts; the loss hardly changes."""
    return small_settings(
        model={"name": "tests.observability.alerts.live.faulty:paced"},
        loop={"epochs": 10_000, "evaluate_every": 10_000},
        optimizer={"learning_rate": 1e-6},
        schedule={"name": "constant"},
        checkpoint={"every_steps": 20},
        metrics={"exporter": "prometheus"},
        scale={"launcher": "torchrun", "workers": 2, "max_restarts": 20},
    )


@contextmanager
def live_run(folder: Path, *, raises: set[str], minute: int = 1) -> Iterator[tuple[Driver, Monitoring]]:
    """A run that has trained without an alert for some minutes of the rules. When the block ends, so does the run.

    From its start to its end it has raised these alerts and no others, and none is left.
    """
    with monitoring(folder, minute=minute) as watched, train(settings(), folder) as driver:
        assert driver.wait_for(is_commit), driver.end()
        report_table.ran("torchrun")
        watched.await_minutes(5)
        assert watched.have_fired() == set()
        yield driver, watched
        driver.interrupt()
        assert driver.end().status == 130
        watched.await_(lambda: not watched.prometheus.query('up{training_job="run"}'), "the run is still a target")
        watched.await_silence()
        assert watched.have_fired() == raises


def rank_process(driver: Driver, rank: int) -> psutil.Process:
    """The process of a rank."""
    (found,) = [
        process
        for process in driver.descendants()
        if process.environ().get("RANK") == str(rank) and "training.launch.rank" in process.cmdline()
    ]
    return found


def test_a_rank_that_hangs_stalls_the_run(tmp_path: Path) -> None:
    with live_run(tmp_path, raises={"TrainingStalled", "GoodputBurnsFast"}) as (driver, watched):
        stopped = rank_process(driver, FAULTY_RANK)
        stopped.suspend()
        stalled = watched.await_alert("TrainingStalled")
        assert stalled.summary.endswith("in run run of job local/run.")
        assert watched.have_fired() == {"TrainingStalled"}
        watched.await_alert("GoodputBurnsFast")
        stopped.resume()
        watched.await_silence()


def test_a_rank_that_is_killed_after_each_checkpoint_is_restart_churn(tmp_path: Path) -> None:
    """And no poison step, because there is a checkpoint between two restarts. It clears when the run ends."""
    with live_run(tmp_path, raises={"TrainingRestartChurn"}, minute=3) as (driver, watched):
        for _ in range(RESTARTS_PER_HOUR):
            assert driver.wait_for(is_commit), driver.end()
            rank_process(driver, FAULTY_RANK).kill()
            assert driver.wait_for(lambda event: isinstance(event, TrainingStarted)), driver.end()
        churn = watched.await_alert("TrainingRestartChurn")
        assert churn.summary == "3 restarts within an hour in run run of job local/run."
