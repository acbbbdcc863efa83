"""The importance of settings, by Optuna itself."""

from __future__ import annotations

import pytest

from tests.tune.report.test_data import data_of
from tests.tune.sample_search import PBT, PBT_SPACE, SampleSearch
from tune.report.importance import importances

FULL = {"name": "none"}


def test_the_learning_rate_decides_the_toy_curve() -> None:
    found = importances(data_of(SampleSearch(trials=60, epochs=9, scheduler=FULL))).by_setting
    assert next(iter(found)) == "optimizer.learning_rate"
    assert found["optimizer.learning_rate"] > 0.5
    assert "optimizer.momentum" in found, "a conditional setting is rated, too"
    assert sum(found.values()) == pytest.approx(1)


def test_the_note_says_which_trials_were_compared_and_optuna_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    note = importances(data_of(SampleSearch(trials=16))).note
    assert "the best 5 of 16 trials" in note
    assert "validation accuracy, also of those that were stopped early" in note
    assert capfd.readouterr() == ("", "")


def test_trials_that_cannot_be_compared_have_no_importance() -> None:
    few = SampleSearch(trials=9, epochs=9)
    population = SampleSearch(trials=12, epochs=4, scheduler=PBT, space=PBT_SPACE)
    space = {"optimizer.learning_rate": {"choice": [0.001, 0.01]}}
    equal = SampleSearch(trials=12, epochs=1, scheduler=FULL, space=space, objectives={"parameters": "min"})
    for search, why in (
        (few, "it needs at least 10 trials that ended with a result, and there are 9."),
        (population, "change while it trains"),
        (equal, "all equal"),
    ):
        found = importances(data_of(search))
        assert found.by_setting == {}
        assert why in found.note
