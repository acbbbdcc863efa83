"""Objectives that do not fit: the data, the model, the metric that ranks checkpoints, and mistakes in one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import run_world
from tests.training.objectives.recipes import recipe
from tests.training.runs import run_alone, small_settings
from training.errors import NonFiniteLossError, ResumeMismatchError, SettingsError


def test_wrong_settings_are_refused_before_anything_starts() -> None:
    best = "checkpoint.best_metric"
    cases = {
        "objective.name=clasification": "did you mean classification",
        "objective.options.mixup=-1": "objective.options.mixup",
        "objective.options.smoothing=0.1": "objective.options.smoothing",
        "objective.name=no_such_package:Loss": "no module named 'no_such_package'",
        f"{best}=validation_f1": "objective classification reports no such metric",
        f"objective.name=regression {best}=validation_mean_absolute_eror": "did you mean",
        f"{best}=accuracy": best,
    }
    assert_refused(cases)


def test_what_does_not_fit_together_is_named(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, dict[str, Any]], str]] = [
        ({"objective": {"name": "regression"}}, "needs targets of torch.float32"),
        ({"objective": {"name": "language_modelling"}}, "needs targets of torch.int64 and shape (1, 8, 8)"),
        ({"objective": {"options": {"class_weights": [1, 2]}}}, "has 2 weights for 10 classes"),
        ({"model": {"name": "tests.training.objectives.own:too_narrow"}}, "the model returns (64, 9) for 64 samples"),
        ({"model": {"name": "transformer"}}, "expects tokens"),
        ({"data": {"dataset": "python_reference"}, "objective": {"name": "language_modelling"}}, "expects images"),
    ]
    for number, (sections, message) in enumerate(cases):
        with pytest.raises(SettingsError) as caught:
            run_alone(small_settings(**sections), tmp_path / str(number))
        assert message in str(caught.value)
        assert caught.value.remedy


def test_mistakes_in_an_objective_of_your_own_are_named(tmp_path: Path) -> None:
    for name, message in (
        ("NoGradient", "the loss has no gradient"),
        ("Aside", "the gradient of the loss reaches no weight of the model"),
        ("NotSummed", "loss is a tensor of shape (32, 1)"),
        ("OneShort", "must return 2 scalar tensors: loss, below; it returned a tuple of 1"),
        ("padded_text", "returned DataBundle"),
    ):
        objective = {"name": f"tests.training.objectives.own:{name}", "options": {}}
        with pytest.raises(SettingsError) as caught:
            run_alone(recipe("own", objective=objective), tmp_path / name)
        assert message in str(caught.value)


def test_a_loss_that_trains_nothing_is_refused_on_several_ranks(tmp_path: Path) -> None:
    objective = {"name": "tests.training.objectives.own:Aside", "options": {}}
    with pytest.raises(SettingsError, match=r"objective Aside: .* no"):
        run_world(recipe("own", workers=2, objective=objective), tmp_path / "run")


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path: Path) -> None:
    run = recipe("own", objective={"name": "tests.training.objectives.own:NotANumber"})
    with pytest.raises(NonFiniteLossError, match="step 1"):
        run_alone(run, tmp_path / "run")


def test_a_checkpoint_of_another_objective_is_refused(tmp_path: Path) -> None:
    run_alone(recipe("regression", loop={"max_steps": 4}), tmp_path / "run")
    other = recipe("own", model={"options": {"hidden": [16], "dropout": 0.1}}, loop={"max_steps": 8})
    with pytest.raises(ResumeMismatchError, match="objective: saved regression, wanted tests"):
        run_alone(other, tmp_path / "run")
