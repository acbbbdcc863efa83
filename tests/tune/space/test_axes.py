"""The kinds of axes: their values, bounds and steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config.schema import OptionValue
from tune.space.axes import Axis, Choice, Condition, Constant, Continuous, Integers, has_value, is_same


def test_a_constant_has_one_value() -> None:
    axis = Constant("sgd")
    assert (list(axis.grid()), axis.clip("adam"), list(axis.extremes)) == (["sgd"], "sgd", ["sgd"])


def test_a_choice_has_the_values_listed() -> None:
    axis = Choice(("sgd", None, [8, 16]))
    assert list(axis.grid()) == list(axis.extremes) == ["sgd", None, [8, 16]]
    assert axis.clip([8, 16]) == [8, 16]
    assert axis.clip("adam") == "sgd"


def test_a_choice_knows_true_from_one() -> None:
    assert Choice((True, 1)).clip(1) == 1
    assert not isinstance(Choice((True, 1)).clip(1), bool)


@pytest.mark.parametrize("values", [(), (1, 1), (None, "a", None), ([1, 2], [1, 2])])
def test_a_choice_without_a_value_or_with_one_twice_is_refused(values: tuple[OptionValue, ...]) -> None:
    with pytest.raises(ValueError, match="choice"):
        Choice(values)


def test_the_message_about_a_repeated_choice_shows_it_as_the_file_has_it() -> None:
    with pytest.raises(ValueError, match=r"choice has null twice"):
        Choice((None, None))


@pytest.mark.parametrize(
    ("low", "high", "step", "values"),
    [(1, 3, 1, [1, 2, 3]), (8, 64, 28, [8, 36, 64]), (8, 64, 10, [8, 18, 28, 38, 48, 58]), (-2, 2, 2, [-2, 0, 2])],
)
def test_integers_go_from_the_lowest_in_steps(low: int, high: int, step: int, values: list[int]) -> None:
    axis = Integers(low, high, step=step)
    assert list(axis.grid()) == values
    assert axis.clip(10**9) == values[-1]
    assert axis.clip(-(10**9)) == values[0]


def test_the_highest_integer_to_check_is_one_that_the_steps_reach() -> None:
    assert list(Integers(8, 64, step=10).extremes) == [8, 58]


def test_integers_are_clipped_to_the_nearest() -> None:
    axis = Integers(8, 64, step=8)
    assert [axis.clip(value) for value in (8, 13, 19.9, 1e9)] == [8, 16, 16, 64]


def test_a_grid_of_many_integers_takes_no_memory() -> None:
    assert len(Integers(0, 10**12).grid()) == 10**12 + 1


@pytest.mark.parametrize(
    ("low", "high", "step", "values"),
    [
        (0.0, 0.3, 0.1, [0.0, 0.1, 0.2, 0.3]),
        (0.1, 0.3, 0.2, [0.1, 0.3]),
        (0.0, 1.0, 0.3, [0.0, 0.3, 0.6, 0.9]),
        (1e-4, 5e-4, 1e-4, [1e-4, 2e-4, 3e-4, 4e-4, 5e-4]),
        (1e9, 1e9 + 0.002, 0.001, [1e9, 1e9 + 0.001, 1e9 + 0.002]),
    ],
)
def test_real_numbers_with_a_step_are_the_decimal_ones(
    low: float, high: float, step: float, values: list[float]
) -> None:
    axis = Continuous(low, high, step=step)
    assert list(axis.grid()) == values
    assert list(axis.extremes) == [values[0], values[-1]]


def test_real_numbers_without_a_step_have_no_grid() -> None:
    with pytest.raises(ValueError, match="finite number of values"):
        Continuous(0.0, 1.0).grid()


def test_real_numbers_are_clipped_to_the_bounds_and_steps() -> None:
    assert [Continuous(0.5, 1.0).clip(value) for value in (0.1, 0.7, 3)] == [0.5, 0.7, 1.0]
    assert [Continuous(0.0, 0.5, step=0.1).clip(value) for value in (-1, 0.1 + 0.2, 0.34, 9)] == [0.0, 0.3, 0.3, 0.5]


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1)])
def test_bounds_that_hold_fewer_than_two_values_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match=f"lowest value {low} must be smaller than the highest, {high}"):
        Integers(low, high)
    with pytest.raises(ValueError, match="must be smaller"):
        Continuous(float(low), float(high))


def test_a_step_longer_than_the_range_is_refused() -> None:
    with pytest.raises(ValueError, match="step=5 is longer than the range from 1 to 4"):
        Integers(1, 4, step=5)
    with pytest.raises(ValueError, match=r"step=0.5 is longer than the range from 0.1 to 0.3"):
        Continuous(0.1, 0.3, step=0.5)


def test_a_logarithmic_axis_begins_above_zero() -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        Integers(0, 8, is_log=True)
    with pytest.raises(ValueError, match=r"must be greater than 0, got 0.0"):
        Continuous(0.0, 1.0, is_log=True)


def test_a_logarithmic_axis_has_no_steps() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        Integers(1, 8, step=2, is_log=True)


def test_a_condition_holds_for_any_of_its_values_and_never_for_an_axis_that_does_not_apply() -> None:
    condition = Condition.of("optimizer.name", ("sgd", "adam"))
    assert condition.holds({"optimizer.name": "adam"})
    assert not condition.holds({"optimizer.name": "adamw"})
    assert not condition.holds({})


def test_a_condition_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"when.optimizer.name=\[\] never holds"):
        Condition.of("optimizer.name", ())


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        (Integers(1, 9), 3, True),
        (Integers(1, 9), 3.5, False),
        (Integers(0, 9), True, False),
        (Integers(1, 9), "3", False),
        (Integers(1, 9), None, False),
        (Continuous(0.0, 1.0), [0.5], False),
        (Continuous(0.0, 1.0), 1.5, False),
        (Continuous(0.0, 1.0, step=0.1), 0.3, True),
        (Continuous(0.0, 1.0, step=0.1), 0.35, False),
        (Choice((None, "a")), None, True),
        (Choice((1, 2)), True, False),
        (Constant(None), None, True),
        (Constant(0), False, False),
    ],
)
def test_an_axis_knows_its_values(axis: Axis, value: OptionValue, *, expected: bool) -> None:
    assert has_value(axis, value) is expected


def test_true_is_not_one() -> None:
    assert is_same(1, 1.0)
    assert not is_same(1, True)


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
