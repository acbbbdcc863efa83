"""A population of real trials: bad ones continue from the weights of good ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.runlog import Restored, TrainingStarted, read_all, select
from tests.distribution import RAY
from tests.tune.searches import search_in
from tune.folder import SearchFolder
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

POPULATION = {
    "trials": 5,
    "algorithm": "random",
    "scheduler": {"name": "pbt", "every_epochs": 2, "quantile": 0.4},
    "space": {
        "optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]},
        "model.options.width": {"choice": [8, 16]},
    },
}


@pytest.mark.long
def test_clones_begin_with_the_weights_of_their_donors_and_keep_their_own_name(tmp_path: Path) -> None:
    folder = SearchFolder(search_in(tmp_path, POPULATION, epochs=6))
    history = SearchHistory.read(folder.path)
    assert [trial.status for trial in history.trials.values()] == ["done"] * 5
    exploits = [exploit for trial in history.trials.values() for exploit in trial.exploits]
    assert len(exploits) >= 2
    for exploit in exploits:
        events = read_all(folder.trial(exploit.trial).path)
        after = next(event for event in select(events, Restored) if event.time > exploit.time)
        assert (after.step, after.weights_sha256) == (exploit.step, exploit.weights_sha256)
        assert exploit.donor != exploit.trial
        donor = history.trials[exploit.donor]
        assert exploit.values["model.options.width"] in {donor.first_values["model.options.width"], *_widths(history)}
    assert {run.name for run in folder.trials.iterdir()} == set(history.trials)
    for trial in history.trials.values():
        started = select(read_all(folder.trial(trial.id).path), TrainingStarted)
        assert started[-1].total_steps == started[0].total_steps
        assert trial.epoch == 6


def _widths(history: SearchHistory) -> set[object]:
    return {exploit.values["model.options.width"] for trial in history.trials.values() for exploit in trial.exploits}
