"""The goodput of a real run that loses a rank and is stopped and resumed: its classes add up to the clock on the wall."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from observability.goodput import GoodputLedger
from observability.runlog import RunEnded, RunStarted, WorkersFailed, read_all, select
from tests.training.launch.driver import Driver, is_commit, train
from tests.training.runs import small_settings
from training.config.schema import TrainingSettings

pytestmark = pytest.mark.extended

EVERY_STEPS = 40
FAILURE_STEP = 75
"""The rank is killed in it. The steps from 41 to 63, where an epoch ends, are reported by then, and no checkpoint has them."""

PAUSE_SECONDS = 1.0

PRICE, NEXT_PRICE = 3600.0, 7200.0
"""Of the machine in dollars per hour, before and after the pause: one and two dollars per second."""


def settings(root: Path) -> TrainingSettings:
    """A rank that is killed once, after the first checkpoint."""
    options = {"step": FAILURE_STEP, "rank": 0, "trace": str(root / "failed"), "run": str(root / "runs" / "run")}
    return small_settings(
        model={"name": "tests.training.faults.models:killed", "options": options},
        run={"dollars_per_hour": PRICE},
        loop={"epochs": 200},
        schedule={"name": "constant"},
        checkpoint={"every_steps": EVERY_STEPS, "keep_best": 0},
        scale={"max_restarts": 1},
    )


def test_a_killed_stopped_and_resumed_run_accounts_for_every_second(tmp_path: Path) -> None:
    with train(settings(tmp_path), tmp_path) as driver:
        assert driver.wait_for(lambda event: isinstance(event, RunStarted)), driver.end()
        began = time.monotonic()
        assert driver.wait_for(lambda event: isinstance(event, WorkersFailed)), driver.end()
        assert driver.wait_for(is_commit), driver.end()
        driver.interrupt()
        assert driver.end().status == 130
        driver.wait_for_descendants()
    run = driver.run
    (stopped,) = select(read_all(run), RunEnded)
    time.sleep(PAUSE_SECONDS)
    resume = ["resume", "run", "--root", str(run.parent), "--set", f"loop.max_steps={stopped.step + 30}"]
    resume += ["--set", f"run.dollars_per_hour={NEXT_PRICE}"]
    with Driver(*resume, run=run) as driver:
        assert driver.wait_for(lambda event: isinstance(event, RunEnded)), driver.end()
        wall = time.monotonic() - began
        ended = driver.end()
    assert ended.status == 0, ended.err
    ledger = GoodputLedger.of_run(run)
    assert ledger.wall_seconds == pytest.approx(wall, rel=0.01)
    assert f"\ngoodput {ledger.describe()}\n" in ended.out
    for name in ("startup", "productive", "data", "evaluation", "finish", "lost", "detection", "restart"):
        assert ledger.seconds[name] > 0, name
    assert ledger.seconds["idle"] > PAUSE_SECONDS
    first, last = select(read_all(run), RunStarted)
    assert ledger.cost is not None
    assert ledger.cost.total == pytest.approx(
        stopped.time - first.time + 2 * (read_all(run)[-1].time - last.time), rel=1e-6
    )
    assert f"\ncost {ledger.cost.describe()}\n" in ended.out
