"""Axes that would make the trials incomparable are refused, by the whole check of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from training.errors import SettingsError
from tune.config import SearchConfiguration

RATE = {"log_uniform": [1e-4, 1e-1]}
REGRESSION: dict[str, Any] = {
    "data": {"dataset": "diabetes"},
    "model": {"name": "mlp"},
    "objective": {"name": "regression"},
}
TEXT: dict[str, Any] = {
    "data": {"dataset": "python_reference"},
    "model": {"name": "transformer"},
    "objective": {"name": "language_modelling"},
}


def configuration(
    tmp_path: Path, space: dict[str, Any], search: dict[str, Any] | None = None, shared: dict[str, Any] | None = None
) -> SearchConfiguration:
    file = tmp_path / "my.yaml"
    sections = {**(shared or {}), "search": {**(search or {}), "space": space}}
    file.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
    return SearchConfiguration.read([file], environment={})


def refusal(tmp_path: Path, *parts: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        configuration(tmp_path, *parts).check()
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_an_axis_that_changes_what_trials_are_measured_on_is_refused(tmp_path: Path) -> None:
    samples = "different validation samples"
    noise = {"data": {"dataset": "synthetic"}, "model": {"name": "mlp"}}
    cases: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("data.dataset", {"choice": ["digits", "synthetic"]}, {}, samples),
        ("data.validation_fraction", {"uniform": [0.1, 0.3]}, {}, samples),
        ("loop.validation", {"choice": ["inline", "async"]}, {}, "trials are compared after each evaluation"),
        ("loop.evaluate_every", {"choice": [1, 2]}, {}, "more epochs to choose its best one from"),
        ("data.options.noise", {"uniform": [1, 9]}, noise, samples),
        ("data.options.length", {"choice": [32, 64]}, TEXT, samples),
    ]
    for key, axis, shared, why in cases:
        message = refusal(tmp_path, {key: axis}, {}, shared)
        assert message.startswith("my.yaml:")
        assert f"search.space.{key}: cannot vary: " in message
        assert why in message
        assert f"remedy: set it for all trials: {key}=" in message
    some = {"value": 0.2, "when": {"optimizer.name": "sgd"}}
    space = {"optimizer.name": {"choice": ["sgd", "adamw"]}, "data.validation_fraction": some}
    assert "search.space.data.validation_fraction: cannot vary" in refusal(tmp_path, space), "some trials have it"
    late = refusal(tmp_path, {"optimizer.learning_rate": RATE}, {}, {"loop": {"validation": "async"}})
    assert "loop.validation=async: a search decides after each evaluation" in late
    worse = refusal(tmp_path, {"optimizer.learning_rate": RATE}, {"objectives": {"validation_accuracy": "min"}})
    assert "search.objectives.validation_accuracy = min: more of it is better" in worse
    assert "remedy: validation_accuracy: max" in worse


def test_the_length_of_a_trial_varies_only_where_nothing_compares_trials_in_between(tmp_path: Path) -> None:
    for key in ("loop.epochs", "loop.max_steps"):
        space = {key: {"choice": [6, 9]}, "optimizer.learning_rate": RATE}
        for scheduler in ("asha", "hyperband", "median", "pbt", "pb2"):
            message = refusal(tmp_path, space, {"scheduler": {"name": scheduler}})
            assert f"search.space.{key}: cannot vary: {scheduler} compares trials after equal epochs" in message
            assert "search.scheduler.name=none" in message
        configuration(tmp_path, space).check()


def test_a_value_that_all_trials_have_does_not_vary_and_holds_for_the_search_too(tmp_path: Path) -> None:
    space = {
        "loop.epochs": 4,
        "loop.evaluate_every": {"choice": [2]},
        "data.validation_fraction": 0.2,
        "optimizer.learning_rate": RATE,
    }
    found = configuration(tmp_path, space, {"scheduler": {"name": "asha"}})
    found.check()
    assert (found.shared.loop.epochs, found.shared.loop.evaluate_every) == (4, 2)
    assert found.shared.optimizer == found.settings().optimizer


def test_losses_of_different_kinds_are_not_compared(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("objective.options.class_weights", {"choice": [[], [2.0, *[1.0] * 9]]}, {}),
        ("objective.options.loss", {"choice": ["squared", "huber"]}, REGRESSION),
        ("objective.options.delta", {"uniform": [0.5, 2]}, REGRESSION),
        ("objective.name", {"choice": ["classification", "multi_label"]}, {}),
    ]
    for key, axis, shared in cases:
        message = refusal(tmp_path, {key: axis}, {"objectives": {"validation_loss": "min"}}, shared)
        assert f"search.space.{key}: changes what validation_loss means, by which the trials are compared" in message
        assert "remedy: name another metric in search.objectives" in message


def test_losses_of_different_kinds_may_be_trained_with_if_another_metric_compares(tmp_path: Path) -> None:
    weights = {"objective.options.class_weights": {"choice": [[], [2.0, *[1.0] * 9]]}}
    configuration(tmp_path, weights, {"objectives": {"validation_accuracy": "max"}}).check()
    loss = {"objective.options.loss": {"choice": ["squared", "huber"]}}
    configuration(tmp_path, loss, {"objectives": {"validation_mean_absolute_error": "min"}}, REGRESSION).check()
    smoothing = {"objective.options.label_smoothing": {"uniform": [0, 0.2]}}  # in training only
    configuration(tmp_path, smoothing, {"objectives": {"validation_loss": "min"}}).check()


def test_what_leaves_the_comparison_alone_may_vary(tmp_path: Path) -> None:
    space = {
        "run.seed": {"integer": [0, 9]},
        "data.augment": {"choice": [True, False]},
        "data.options.shift": {"integer": [0, 2]},
        "loop.global_batch": {"choice": [32, 64]},
        "loop.nonfinite": {"choice": ["stop", "skip"]},
        "precision.mode": {"choice": ["fp32", "bf16"]},
    }
    configuration(tmp_path, space, {"scheduler": {"name": "asha"}}).check()


def test_an_objective_that_lacks_the_metric_is_refused_among_others(tmp_path: Path) -> None:
    space = {"objective.name": {"choice": ["classification", "regression"]}}
    message = refusal(tmp_path, space)
    assert "search.objectives.validation_accuracy: objective regression reports no such metric" in message
    assert "its metrics: validation_loss, validation_mean_absolute_error" in message
    both = {"objective.name": {"choice": ["classification", "language_modelling"]}}
    configuration(tmp_path, both).check()
