"""Spaces are checked against the settings that they vary, and axes that would make the trials incomparable are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tune.spaces import Axes, space_of
from training.config.load import Configuration
from training.config.schema import TrainingSettings
from training.config.sources import from_keys, merge
from training.errors import SettingsError
from tune.config import SearchConfiguration
from tune.space.axes import Values
from tune.space.check import check_space, is_number
from tune.space.settings import AxisSettings


def check(axes: Axes, *overrides: str) -> None:
    base = Configuration.read((), overrides, environment={})

    def settings(values: Values) -> TrainingSettings:
        chosen = from_keys((key, value, "search.space") for key, value in values.items())
        return Configuration(files=base.files, invocation=merge(base.invocation, chosen)).settings()

    check_space(space_of(axes), settings)


def refusal(axes: Axes, *overrides: str) -> str:
    with pytest.raises(SettingsError) as caught:
        check(axes, *overrides)
    return str(caught.value)


def test_a_space_over_every_kind_of_setting_is_accepted() -> None:
    check(
        {
            "optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]},
            "optimizer.name": {"choice": ["sgd", "adamw"]},
            "optimizer.momentum": {"uniform": [0.5, 0.99], "when": {"optimizer.name": "sgd"}},
            "optimizer.betas": {"choice": [[0.9, 0.99], [0.9, 0.999]], "when": {"optimizer.name": "adamw"}},
            "model.options.width": {"integer": [8, 64], "step": 8},
            "loop.clip_norm": {"choice": [None, 1.0]},
            "loop.global_batch": {"choice": [32, 64]},
            "schedule.name": {"value": "one_cycle"},
            "data.augment": {"choice": [True, False]},
            "run.seed": {"integer": [0, 9]},
        }
    )


def test_an_axis_of_no_setting_is_refused_with_the_nearest_name() -> None:
    for key, nearest in {
        "optimizer.learning_rat": "did you mean optimizer.learning_rate?",
        "optimiser.learning_rate": "did you mean optimizer.learning_rate?",
        "learning_rate": "did you mean optimizer.learning_rate?",
        "loop.epoch": "did you mean loop.epochs?",
        "schedule.zzzzzz": "settings of schedule: schedule.final_fraction, ",
        "zzzzzz": "sections: model, data",
    }.items():
        message = refusal({key: {"choice": [1, 2]}})
        assert message.startswith(f"search.space.{key}: no such setting\n  remedy: {nearest}")
    assert "name one of them: model.options.NAME" in refusal({"model.options": {"choice": [1, 2]}})


def test_a_setting_that_all_trials_share_cannot_vary() -> None:
    for key, why in {
        "scale.workers": "worker groups of one size",
        "checkpoint.keep": "saved alike",
        "run.name": "names and folders",
        "run.deterministic": "which kernels",
        "tracking.experiment": "recorded in one place",
        "metrics.port": "exported alike",
    }.items():
        message = refusal({key: {"choice": [1, 2]}})
        assert message.startswith(f"search.space.{key}: cannot vary: ")
        assert why in message
        assert f"set it for all trials: {key}=" in message


def test_a_value_that_its_setting_refuses_is_named_with_the_rule() -> None:
    cases: list[tuple[str, dict[str, object], str]] = [
        ("optimizer.momentum", {"uniform": [0.5, 1]}, " = 1.0: must be less than 1"),
        ("optimizer.name", {"choice": ["sgd", "lion"]}, " = lion: must be one of sgd, adam, adamw"),
        ("run.seed", {"integer": [-1, 3]}, " = -1: must be greater than or equal to 0"),
        ("loop.epochs", {"uniform": [1, 5]}, " = "),
        ("loop.epochs", {"value": None}, " = null: must be a valid integer"),
        ("model.options.widht", {"integer": [8, 16]}, ": no such setting"),
        ("model.options.width", {"choice": ["wide"]}, " = wide: must be a valid integer"),
        ("model.name", {"choice": ["simple_cnn", "mpl"]}, "=mpl"),
    ]
    for key, axis, said in cases:
        assert refusal({key: axis}).startswith(f"search.space.{key}{said}")
    momentum = {"optimizer.momentum": {"uniform": [0, 0.9]}}
    assert refusal(momentum, "loop.epochs=0").startswith("--set: loop.epochs = 0: must be greater than 0")
    check({"optimizer.momentum": {"uniform": [0.5, 1], "step": 0.3}})  # its steps do not reach 1


def test_a_value_of_an_axis_that_applies_only_through_others_is_tried() -> None:
    message = refusal(
        {
            "optimizer.name": {"choice": ["adamw", "sgd"]},
            "optimizer.nesterov": {"choice": [False, True], "when": {"optimizer.name": "sgd"}},
            "optimizer.momentum": {"choice": [0.9, 1.5], "when": {"optimizer.nesterov": True}},
        }
    )
    assert message.startswith("search.space.optimizer.momentum = 1.5: must be less than 1")


def test_a_combination_that_a_rule_forbids_is_refused_with_its_values() -> None:
    message = refusal({"optimizer.nesterov": {"choice": [True, False]}, "optimizer.name": {"choice": ["sgd", "adam"]}})
    assert message.startswith("search.space.optimizer.name: a trial may get optimizer.n")
    assert "optimizer.nesterov=true" in message
    assert "nesterov=true needs name=sgd with momentum > 0, got name=adam" in message
    assert "remedy: restrict an axis" in message
    sgd = {"choice": [False, True], "when": {"optimizer.name": "sgd"}}
    check({"optimizer.name": {"choice": ["sgd", "adam"]}, "optimizer.nesterov": sgd})


def test_a_combination_that_only_random_draws_find_is_refused() -> None:
    # Every axis at its bounds leaves the others at their first values.
    message = refusal(
        {
            "optimizer.nesterov": {"choice": [False, True]},
            "optimizer.name": {"choice": ["sgd", "adam"]},
            "data.augment": {"choice": [True, False]},
        }
    )
    assert message.startswith("search.space: a trial may get ")
    assert "optimizer.nesterov=true, optimizer.name=adam" in message


def test_options_of_one_model_apply_only_to_it() -> None:
    axes: Axes = {"model.name": {"choice": ["mlp", "simple_cnn"]}, "model.options.width": {"choice": [8, 16]}}
    assert "model.options.width" in refusal(axes)
    check({**axes, "model.options.width": {"choice": [8, 16], "when": {"model.name": "simple_cnn"}}})


def test_options_of_the_user_s_own_model_are_those_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_models.py").write_text(
        "from dataclasses import dataclass\n\n\n"
        "def make(classes: int, *, channels: int = 8, slope: float = 0.1) -> object:\n"
        '    """A model."""\n'
        "    raise AssertionError('a check does not build models')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = "model.name=my_models:make"
    check({"model.options.channels": {"integer": [8, 16]}, "model.options.slope": {"uniform": [0, 1]}}, own)
    message = refusal({"model.options.chanels": {"integer": [8, 16]}}, own)
    assert message.startswith(
        "search.space.model.options.chanels: a trial may get model.options.chanels=8, which is refused: "
    )
    assert "remedy: " in message
    assert "channels: int = 8" in message


def test_an_axis_of_numbers_can_be_perturbed_and_one_of_names_cannot() -> None:
    axes = {
        "a": AxisSettings(uniform=(0, 1)),
        "b": AxisSettings(choice=(1, 2.5)),
        "c": AxisSettings(choice=(1, None)),
        "d": AxisSettings(choice=(True, False)),
        "e": AxisSettings(integer=(1, 2)),
    }
    found = {key: is_number(axis.axis()) for key, axis in axes.items()}
    assert found == {"a": True, "b": True, "c": False, "d": False, "e": True}


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


def refused(tmp_path: Path, *parts: dict[str, Any]) -> str:
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
        message = refused(tmp_path, {key: axis}, {}, shared)
        assert message.startswith("my.yaml:")
        assert f"search.space.{key}: cannot vary: " in message
        assert why in message
        assert f"remedy: set it for all trials: {key}=" in message
    some = {"value": 0.2, "when": {"optimizer.name": "sgd"}}
    space = {"optimizer.name": {"choice": ["sgd", "adamw"]}, "data.validation_fraction": some}
    assert "search.space.data.validation_fraction: cannot vary" in refused(tmp_path, space), "some trials have it"
    late = refused(tmp_path, {"optimizer.learning_rate": RATE}, {}, {"loop": {"validation": "async"}})
    assert "loop.validation=async: a search decides after each evaluation" in late
    worse = refused(tmp_path, {"optimizer.learning_rate": RATE}, {"objectives": {"validation_accuracy": "min"}})
    assert "search.objectives.validation_accuracy = min: more of it is better" in worse
    assert "remedy: validation_accuracy: max" in worse


def test_the_length_of_a_trial_varies_only_where_nothing_compares_trials_in_between(tmp_path: Path) -> None:
    for key in ("loop.epochs", "loop.max_steps"):
        space = {key: {"choice": [6, 9]}, "optimizer.learning_rate": RATE}
        for scheduler in ("asha", "hyperband", "median", "pbt", "pb2"):
            message = refused(tmp_path, space, {"scheduler": {"name": scheduler}})
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
        message = refused(tmp_path, {key: axis}, {"objectives": {"validation_loss": "min"}}, shared)
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
    message = refused(tmp_path, space)
    assert "search.objectives.validation_accuracy: objective regression reports no such metric" in message
    assert "its metrics: validation_loss, validation_mean_absolute_error" in message
    both = {"objective.name": {"choice": ["classification", "language_modelling"]}}
    configuration(tmp_path, both).check()
