"""The kinds of axes: their values, bounds and steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config.schema import OptionValue
from tune.space.axes import Axis, Choice, Condition, Constant, Continuous, Integers, has_value, is_same


def test_a_constant_has_one_value() -> None:
    axis = Constant("sgd")
    assert (list(axis.grid()), axis.clip("adam"), list(axis.extremes)) == (["sgd"], "sgd", ["sgd"])


def test_a_choice_has_the_values_listed_and_knows_true_from_one() -> None:
    axis = Choice(("sgd", None, [8, 16]))
    assert list(axis.grid()) == list(axis.extremes) == ["sgd", None, [8, 16]]
    assert [axis.clip(value) for value in ([8, 16], "adam")] == [[8, 16], "sgd"]
    assert is_same(Choice((True, 1)).clip(1), 1)
    assert is_same(1, 1.0)
    assert not is_same(1, True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Choice(()), "choice"),
        (lambda: Choice((1, 1)), "choice has 1 twice"),
        (lambda: Choice(([1, 2], [1, 2])), "choice"),
        (lambda: Integers(1, 1), "lowest value 1 must be smaller than the highest, 1"),
        (lambda: Integers(1, 4, step=5), "step=5 is longer than the range from 1 to 4"),
        (lambda: Continuous(0.1, 0.3, step=0.5), "step=0.5 is longer than the range from 0.1 to 0.3"),
        (lambda: Integers(0, 8, is_log=True), "must be at least 1, got 0"),
        (lambda: Continuous(0.0, 1.0, is_log=True), "must be greater than 0, got 0.0"),
        (lambda: Integers(1, 8, step=2, is_log=True), "exclude each other"),
        (lambda: Continuous(0.0, 1.0).grid(), "finite number of values"),
    ],
)
def test_what_is_no_axis_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        make()


def test_integers_go_from_the_lowest_in_steps_and_are_clipped_to_the_nearest() -> None:
    for low, high, step, values in (
        (1, 3, 1, [1, 2, 3]),
        (8, 64, 28, [8, 36, 64]),
        (8, 64, 10, [8, 18, 28, 38, 48, 58]),
        (-2, 2, 2, [-2, 0, 2]),
    ):
        axis = Integers(low, high, step=step)
        assert list(axis.grid()) == values
        assert list(axis.extremes) == [values[0], values[-1]] == [axis.clip(-(10**9)), axis.clip(10**9)]
    assert [Integers(8, 64, step=8).clip(value) for value in (8, 13, 19.9, 1e9)] == [8, 16, 16, 64]
    assert len(Integers(0, 10**12).grid()) == 10**12 + 1, "without memory for them"


def test_real_numbers_with_a_step_are_the_decimal_ones() -> None:
    for low, high, step, values in (
        (0.0, 0.3, 0.1, [0.0, 0.1, 0.2, 0.3]),
        (0.1, 0.3, 0.2, [0.1, 0.3]),
        (0.0, 1.0, 0.3, [0.0, 0.3, 0.6, 0.9]),
        (1e-4, 5e-4, 1e-4, [1e-4, 2e-4, 3e-4, 4e-4, 5e-4]),
        (1e9, 1e9 + 0.002, 0.001, [1e9, 1e9 + 0.001, 1e9 + 0.002]),
    ):
        axis = Continuous(low, high, step=step)
        assert list(axis.grid()) == values
        assert list(axis.extremes) == [values[0], values[-1]]


def test_real_numbers_are_clipped_to_the_bounds_and_steps() -> None:
    assert [Continuous(0.5, 1.0).clip(value) for value in (0.1, 0.7, 3)] == [0.5, 0.7, 1.0]
    assert [Continuous(0.0, 0.5, step=0.1).clip(value) for value in (-1, 0.1 + 0.2, 0.34, 9)] == [0.0, 0.3, 0.3, 0.5]


def test_a_condition_holds_for_any_of_its_values_and_never_for_an_axis_that_does_not_apply() -> None:
    condition = Condition.of("optimizer.name", ("sgd", "adam"))
    assert condition.holds({"optimizer.name": "adam"})
    assert not condition.holds({"optimizer.name": "adamw"})
    assert not condition.holds({})


def test_an_axis_knows_its_values() -> None:
    own: list[tuple[Axis, OptionValue]] = [
        (Integers(1, 9), 3),
        (Continuous(0.0, 1.0, step=0.1), 0.3),
        (Choice((None, "a")), None),
        (Constant(None), None),
    ]
    others: list[tuple[Axis, OptionValue]] = [
        (Integers(0, 9), 3.5),
        (Integers(0, 9), True),
        (Integers(0, 9), "3"),
        (Integers(0, 9), None),
        (Integers(0, 9), 10),
        (Continuous(0.0, 1.0), [0.5]),
        (Continuous(0.0, 1.0), 1.5),
        (Continuous(0.0, 1.0, step=0.1), 0.35),
        (Choice((1, 2)), True),
        (Constant(0), False),
    ]
    assert [case for case in own if not has_value(*case)] == [case for case in others if has_value(*case)] == []


@given(low=st.integers(-1000, 1000), steps=st.integers(1, 50), digits=st.integers(0, 6), value=st.floats(-1e5, 1e5))
def test_a_clipped_value_is_the_nearest_and_written_with_the_digits_of_the_step(
    low: int, steps: int, digits: int, value: float
) -> None:
    step = float(f"1e-{digits}")
    axis = Continuous(float(low), float(f"{low + steps * step:.6f}"), step=step)
    clipped = axis.clip(value)
    assert has_value(axis, clipped)
    assert isinstance(clipped, float)
    assert clipped == round(clipped, digits)
    inside = min(max(value, axis.low), axis.high)
    assert math.isclose(abs(clipped - inside), 0, abs_tol=step / 2 * 1.001 + 1e-9)
