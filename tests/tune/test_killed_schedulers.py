"""Schedulers whose trials depend on each other, in real searches whose driver is killed: Hyperband's brackets and populations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from observability.event_log import Event
from observability.runlog import Restored, read_all, select
from tests.distribution import RAY
from tests.tune.search_driver import NAME, SearchDriver, assert_counted_once, drivers, search_of
from training.errors import ExitStatus
from tune.events import SearchLogReader, TrialExploited, TrialReported
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

ACCURACY = "validation_accuracy"


def kill_and_continue(root: Path, settings: dict[str, Any], *, at: Callable[[Event], bool]) -> Path:
    """Kill the driver of a search at an event, and let another one finish the search; returns its folder."""
    with SearchDriver(root, settings) as driver:
        assert driver.wait_for(at)
        driver.kill()
        driver.wait_for_descendants()
    with SearchDriver(root, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    return root / NAME


@pytest.mark.long
def test_the_brackets_of_hyperband_end_as_without_the_interruption(tmp_path: Path) -> None:
    """Of the first bracket two trials train all three epochs, of the second three train one, and the best of them the others."""
    rates = [0.01, 0.003, 1e-6, 0.02, 1e-5]
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": rates}},
        epochs=3,
        algorithm="grid",
        trials=len(rates),
        scheduler={"name": "hyperband", "reduction_factor": 3},
    )
    search = kill_and_continue(
        tmp_path, settings, at=lambda event: isinstance(event, TrialReported) and event.trial == "t003"
    )
    assert drivers(search) == 2
    assert_counted_once(search, trials=len(rates))
    trials = SearchHistory.read(search).trials
    assert {name: (trial.status, trial.epoch) for name, trial in trials.items()} == {
        "t001": ("done", 3),
        "t002": ("done", 3),
        "t003": ("stopped", 1),
        "t004": ("done", 3),
        "t005": ("stopped", 1),
    }


@pytest.mark.long
def test_a_population_whose_driver_is_killed_at_an_exploit_makes_it_once(tmp_path: Path) -> None:
    """The clone begins with the donor's weights, although the driver that decided it was killed before it could."""
    settings = search_of(
        space={"optimizer.learning_rate": {"choice": [0.01, 0.003, 0.02, 1e-6]}},
        epochs=4,
        algorithm="grid",
        trials=4,
        scheduler={"name": "pbt", "every_epochs": 2, "quantile": 0.25},
    )
    search = kill_and_continue(tmp_path, settings, at=lambda event: isinstance(event, TrialExploited))
    assert_counted_once(search, trials=4)
    history = SearchHistory.read(search)
    assert {(trial.status, trial.epoch) for trial in history.trials.values()} == {("done", 4)}
    exploits = [event for event in SearchLogReader(search).read_new() if isinstance(event, TrialExploited)]
    assert len({(one.trial, one.epoch) for one in exploits}) == len(exploits)
    for exploit in exploits:
        restored = select(read_all(search / "trials" / exploit.trial), Restored)
        after = next(event for event in restored if event.time > exploit.time)
        assert (after.step, after.weights_sha256) == (exploit.step, exploit.weights_sha256)
