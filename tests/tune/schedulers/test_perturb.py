"""New values of a trial stay in their axes and fit each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tune.spaces import RATE, space_of
from training.config.schema import OptionValue
from tune.schedulers.perturb import Perturbation


def perturbation(axes: dict[str, Any], *, resample: float = 0.0, seed: str = "0") -> Perturbation:
    return Perturbation(space_of(axes), factors=(0.8, 1.2), resample=resample, seed=seed)


def outcomes(
    axes: dict[str, Any], donor: dict[str, OptionValue], *, resample: float = 0.0
) -> list[dict[str, OptionValue]]:
    draw = perturbation(axes, resample=resample)
    return [draw(donor) for _ in range(60)]


def seen(axes: dict[str, Any], key: str, value: OptionValue, *, resample: float = 0.0) -> set[object]:
    return {values[key] for values in outcomes(axes, {key: value}, resample=resample)}


def numbers(axes: dict[str, Any], rate: float, *, resample: float = 0.0) -> set[float]:
    """The learning rates that are drawn."""
    return {float(str(value)) for value in seen(axes, "optimizer.learning_rate", rate, resample=resample)}


def test_a_number_is_multiplied_by_one_of_the_factors_and_stays_on_its_axis() -> None:
    for before, after in {0.01: [0.008, 0.012], 0.1: [0.08, 0.1], 1e-4: [1e-4, 1.2e-4]}.items():
        assert sorted(numbers(RATE, before)) == pytest.approx(after)
    accumulation = {"loop.accumulation": {"integer": [1, 8]}}
    assert seen(accumulation, "loop.accumulation", 2) == {1, 3}, "a step at least"
    assert seen(accumulation, "loop.accumulation", 8) == {6, 8}
    decay = {"optimizer.weight_decay": {"uniform": [0, 0.1], "step": 0.02}}
    assert seen(decay, "optimizer.weight_decay", 0.02) == {0.0, 0.04}
    assert seen(decay, "optimizer.weight_decay", 0.0) == {0.0, 0.02}


def test_a_choice_moves_to_a_neighbour_and_a_value_that_is_drawn_anew_anywhere() -> None:
    axes = {"schedule.name": {"choice": ["constant", "cosine", "step", "one_cycle"]}}
    assert seen(axes, "schedule.name", "cosine") == {"constant", "step"}
    assert seen(axes, "schedule.name", "one_cycle") == {"step"}
    assert seen(axes, "schedule.name", "cosine", resample=1.0) == {"constant", "cosine", "step", "one_cycle"}
    rates = numbers(RATE, 0.01, resample=1.0)
    assert 1e-4 <= min(rates) < 0.001
    assert 0.03 < max(rates) <= 0.1


def test_constants_and_settings_that_the_checkpoint_depends_on_keep_the_donors_value() -> None:
    axes = {"model.options.width": {"integer": [8, 64]}, "optimizer.name": {"value": "sgd"}, **RATE}
    donor: dict[str, OptionValue] = {
        "model.options.width": 24,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 0.01,
    }
    found = outcomes(axes, donor, resample=0.5)
    assert {(values["model.options.width"], values["optimizer.name"]) for values in found} == {(24, "sgd")}
    assert len({values["optimizer.learning_rate"] for values in found}) > 10


def test_conditions_hold_for_the_new_values() -> None:
    axes: dict[str, dict[str, object]] = {
        "schedule.name": {"choice": ["cosine", "step"]},
        "schedule.gamma": {"uniform": [0.1, 0.9], "when": {"schedule.name": "step"}},
    }
    space = space_of(axes)
    cosine = outcomes(axes, {"schedule.name": "cosine"})
    step = outcomes(axes, {"schedule.name": "step", "schedule.gamma": 0.5})
    assert all(space.holds(values) for values in (*cosine, *step))
    assert all(values["schedule.name"] == "step" and "schedule.gamma" in values for values in cosine)
    assert all(values == {"schedule.name": "cosine"} for values in step)


def test_equal_seeds_draw_equal_values() -> None:
    def drawn(seed: str) -> list[dict[str, OptionValue]]:
        draw = perturbation(RATE, resample=0.5, seed=seed)
        return [draw({"optimizer.learning_rate": 0.01}) for _ in range(5)]

    assert drawn("1") == drawn("1")
    assert drawn("1") != drawn("2")


def test_numbers_that_something_else_has_chosen_are_moved_into_their_axes() -> None:
    axes = {"loop.accumulation": {"integer": [1, 8]}, "optimizer.name": {"choice": ["sgd", "adam"]}, **RATE}
    donor: dict[str, OptionValue] = {"loop.accumulation": 2, "optimizer.name": "adam", "optimizer.learning_rate": 0.01}
    chosen = {"loop.accumulation": 6.7, "optimizer.learning_rate": 0.5}
    assert perturbation(axes).with_chosen(donor, chosen) == {
        "loop.accumulation": 7,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 0.1,
    }
