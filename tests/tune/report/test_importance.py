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
    assert sum(found.values()) == pytest.approx(1)


def test_a_conditional_setting_is_rated() -> None:
    assert "optimizer.momentum" in importances(data_of(SampleSearch(trials=30, epochs=9, scheduler=FULL))).by_setting


def test_the_note_says_which_trials_were_compared() -> None:
    note = importances(data_of(SampleSearch(trials=16))).note
    assert "the best 5 of 16 trials" in note
    assert "validation accuracy, also of those that were stopped early" in note


def test_few_trials_have_no_importance() -> None:
    found = importances(data_of(SampleSearch(trials=9, epochs=9)))
    assert found.by_setting == {}
    assert found.note.endswith("it needs at least 10 trials that ended with a result, and there are 9.")


def test_a_population_has_no_importance() -> None:
    found = importances(data_of(SampleSearch(trials=12, epochs=4, scheduler=PBT, space=PBT_SPACE)))
    assert "change while it trains" in found.note


def test_equal_results_have_no_importance() -> None:
    space = {"optimizer.learning_rate": {"choice": [0.001, 0.01]}}
    data = data_of(SampleSearch(trials=12, epochs=1, scheduler=FULL, space=space, objectives={"parameters": "min"}))
    assert "all equal" in importances(data).note


def test_optuna_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert importances(data_of(SampleSearch(trials=16))).by_setting
    assert capfd.readouterr() == ("", "")
