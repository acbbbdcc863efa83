"""Two searches with equal seeds and one trial at a time do the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distribution import RAY
from tests.tune.searches import search_in
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

SEARCH = {
    "space": {
        "optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]},
        "model.options.width": {"integer": [4, 12], "step": 4},
    },
    "algorithm": "optuna",  # which chooses by results after ten trials
    "scheduler": {"name": "asha"},
    "trials": 13,
    "concurrency": 1,
    "seed": 3,
}


def outcome(folder: Path) -> dict[str, Any]:
    """What does not depend on time: values, metrics, and how each trial ended, with the hash of its weights."""
    return {
        trial.id: (
            trial.values,
            [(report.epoch, report.metrics) for report in trial.reports],
            trial.ended and (trial.ended.status, trial.ended.message, trial.ended.weights_sha256),
        )
        for trial in SearchHistory.read(folder).trials.values()
    }


@pytest.mark.long
def test_two_searches_with_equal_seeds_are_equal(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        found.append(outcome(search_in(tmp_path / name, SEARCH, epochs=3)))
    assert found[0] == found[1]
    statuses = {trial[2][0] for trial in found[0].values()}
    assert statuses == {"done", "stopped"}, "both ends are compared"
