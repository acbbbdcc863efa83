"""Schedulers that could never stop or change a trial are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tune.spaces import RATE, search_settings
from training.errors import SettingsError
from tune.schedulers import check
from tune.schedulers.check import check_scheduler
from tune.space.space import Space


def verdict(
    scheduler: dict[str, Any],
    *,
    epochs: int,
    space: dict[str, Any] | None = None,
    trials: int = 16,
    evaluate_every: int = 1,
) -> str:
    """The refusal, or an empty text."""
    settings = search_settings(scheduler, space, trials=trials)
    try:
        check_scheduler(settings, Space.of(settings.space), epochs=epochs, evaluate_every=evaluate_every)
    except SettingsError as error:
        return str(error)
    return ""


def test_a_scheduler_that_stops_nothing_is_refused_with_the_nearest_that_does() -> None:
    refused: list[tuple[dict[str, Any], int, int, str]] = [
        ({"name": "asha", "grace_epochs": 5}, 5, 16, "grace_epochs=5: all trials train loop.epochs=5"),
        ({"name": "asha", "grace_epochs": 6}, 5, 16, "remedy: at most 4"),
        ({"name": "asha"}, 1, 16, "search.scheduler.name=none"),
        ({"name": "asha", "brackets": 3}, 9, 16, "first rung after 9 epochs and loop.epochs=9"),
        ({"name": "asha", "brackets": 3}, 9, 16, "remedy: at most 2"),
        ({"name": "hyperband"}, 2, 16, "remedy: lower it to 2"),
        ({"name": "hyperband", "reduction_factor": 2}, 1, 16, "raise loop.epochs"),
        ({"name": "hyperband"}, 9, 5, "trains the first 3 trials to the end and keeps 2 of the next"),
        ({"name": "hyperband"}, 9, 5, "remedy: at least 6 trials"),
        ({"name": "median"}, 2, 16, "remedy: at most 1"),
        ({"name": "median"}, 10, 3, "remedy: at least 4 trials"),
        ({"name": "pbt", "every_epochs": 10}, 10, 16, "remedy: at most 9"),
        ({"name": "pb2", "every_epochs": 2}, 1, 16, "raise loop.epochs to at least 2"),
    ]
    for scheduler, epochs, trials, said in refused:
        assert said in verdict(scheduler, epochs=epochs, trials=trials)
    accepted: list[tuple[dict[str, Any], int, int]] = [
        ({"name": "none"}, 1, 1),
        ({"name": "asha", "grace_epochs": 4}, 5, 16),
        ({"name": "asha", "brackets": 2}, 9, 16),
        ({"name": "asha", "brackets": 3}, 10, 16),
        ({"name": "hyperband"}, 3, 16),
        ({"name": "hyperband"}, 9, 6),
        ({"name": "median"}, 3, 4),
        ({"name": "pbt", "every_epochs": 9}, 10, 4),
        ({"name": "pb2"}, 10, 4),
    ]
    for scheduler, epochs, trials in accepted:
        assert verdict(scheduler, epochs=epochs, trials=trials) == "", scheduler


def test_a_scheduler_of_trials_that_are_evaluated_once_is_refused() -> None:
    for name in ("asha", "hyperband", "median", "pbt", "pb2"):
        said = verdict({"name": name}, epochs=9, evaluate_every=9)
        assert f"loop.evaluate_every=9: all trials train loop.epochs=9, so {name} would see each one only" in said
        assert "remedy: at most 8" in said
        assert not verdict({"name": name}, epochs=9, evaluate_every=3)
    assert not verdict({"name": "none"}, epochs=9, evaluate_every=9)


def test_a_population_needs_an_axis_that_can_change_during_a_trial() -> None:
    width = {"model.options.width": {"integer": [8, 64]}, "optimizer.momentum": 0.9}
    said = verdict({"name": "pbt"}, epochs=10, space=width)
    assert "none of the axes can: model.options.width, optimizer.momentum" in said
    assert verdict({"name": "pbt"}, epochs=10, space=width | RATE) == ""


def test_an_axis_that_cannot_change_does_not_depend_on_one_that_does() -> None:
    axes = {
        "schedule.name": {"choice": ["cosine", "step"]},
        "loop.global_batch": {"choice": [32, 64], "when": {"schedule.name": "step"}},
    }
    said = verdict({"name": "pbt"}, epochs=10, space=axes)
    assert "search.space.loop.global_batch: applies only with certain values of schedule.name" in said
    assert verdict({"name": "asha"}, epochs=10, space=axes) == ""


def test_bandits_need_a_number_that_every_trial_has() -> None:
    axes = {
        "optimizer.name": {"choice": ["sgd", "adamw"]},
        "optimizer.momentum": {"uniform": [0.5, 0.99], "when": {"optimizer.name": "sgd"}},
        "schedule.name": {"choice": ["cosine", "constant"]},
    }
    assert "there is no such axis that can change" in verdict({"name": "pb2"}, epochs=10, space=axes)
    assert verdict({"name": "pbt"}, epochs=10, space=axes) == ""
    assert verdict({"name": "pb2"}, epochs=10, space=axes | RATE) == ""


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", {}.get)
    assert "pb2 needs scikit-learn, which is not installed" in verdict({"name": "pb2"}, epochs=10)
    assert verdict({"name": "pbt"}, epochs=10) == ""
