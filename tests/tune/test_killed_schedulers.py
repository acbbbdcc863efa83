"""A population, whose trials depend on each other, in a real search whose driver is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.runlog import Restored, read_all, select
from tests.distribution import RAY
from tests.tune.search_driver import SearchDriver, assert_counted_once, search_of
from training.errors import ExitStatus
from tune.events import SearchLogReader, TrialExploited
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)


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
    with SearchDriver(tmp_path, settings) as driver:
        assert driver.wait_for(lambda event: isinstance(event, TrialExploited))
        driver.kill()
        driver.wait_for_descendants()
    with SearchDriver(tmp_path, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
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
