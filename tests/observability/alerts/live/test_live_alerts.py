"""A fault that is injected into a running run raises its alert and no other, and the alert clears.

Two real ranks under torchrun, found and scraped by `make monitor-up` with a real Prometheus and all delivered rules, whose durations are
shortened (`faster_rules`). Only one fault brings two alerts: a stall that lasts. TrainingStalled says so after a quarter of an hour, and
after most of an hour the lost time is a page of its own, as for any loss of that size.

A run that becomes slower because of its data, its network or a slow rank has the alert that names the cause, and not TrainingSlower too.
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

_FAULTY = "tests.observability.alerts.live.faulty:"
_SLOW_DATA, _SLOW_RANK = "slow_data", "slow_rank"
"""Files in the test's folder; each makes its fault last."""

_LONG_ENOUGH = 30
"""Minutes of the rules after which a run that slows down is slower than its median for longer than TrainingSlower waits."""


def settings(folder: Path) -> TrainingSettings:
    """Two ranks that make up to ten steps a second, for longer than a test lasts; the loss hardly changes."""
    return small_settings(
        model={"name": f"{_FAULTY}paced", "options": {"slow_rank": str(folder / _SLOW_RANK)}},
        data={"dataset": f"{_FAULTY}digits", "options": {"slow_data": str(folder / _SLOW_DATA)}},
        loop={"epochs": 10_000, "evaluate_every": 10_000},
        optimizer={"learning_rate": 1e-6},
        schedule={"name": "constant"},
        checkpoint={"every_steps": 20},
        metrics={"exporter": "prometheus"},
        scale={"launcher": "torchrun", "workers": 2, "max_restarts": 20},
    )


@contextmanager
def live_run(
    folder: Path, *, raises: set[str], healthy_minutes: int = 5, minute: int = 1
) -> Iterator[tuple[Driver, Monitoring]]:
    """A run that has trained without an alert for some minutes of the rules. When the block ends, so does the run.

    From its start to its end it has raised these alerts and no others, and none is left.
    """
    with monitoring(folder, minute=minute) as watched, train(settings(folder), folder) as driver:
        assert driver.wait_for(is_commit), driver.end()
        report_table.ran("torchrun")
        watched.await_minutes(healthy_minutes)
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


def test_a_slow_rank_is_a_straggler(tmp_path: Path) -> None:
    with live_run(tmp_path, raises={"TrainingStraggler"}, healthy_minutes=_LONG_ENOUGH) as (_, watched):
        (tmp_path / _SLOW_RANK).touch()
        straggler = watched.await_alert("TrainingStraggler")
        assert straggler.summary.startswith(f"Rank {FAULTY_RANK} has ")
        (tmp_path / _SLOW_RANK).unlink()
        watched.await_silence()


def test_a_dataset_that_becomes_slow_makes_the_run_data_bound(tmp_path: Path) -> None:
    with live_run(tmp_path, raises={"TrainingDataBound"}, healthy_minutes=_LONG_ENOUGH) as (_, watched):
        (tmp_path / _SLOW_DATA).touch()
        watched.await_alert("TrainingDataBound")
        (tmp_path / _SLOW_DATA).unlink()
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
