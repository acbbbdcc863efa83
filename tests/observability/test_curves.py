"""Line charts in Braille patterns."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from observability.curves import braille, grouped_means

values = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=200)
sizes = st.integers(min_value=1, max_value=40)


@given(values, sizes, sizes)
def test_a_curve_fills_its_rectangle(series: list[float], width: int, height: int) -> None:
    lines = braille(series, width=width, height=height)
    assert [len(line) for line in lines] == [width] * height
    assert all(0x2800 <= ord(cell) <= 0x28FF for line in lines for cell in line)


@given(values, sizes)
def test_there_are_at_most_as_many_groups_as_requested_and_means_stay_in_range(
    series: list[float], groups: int
) -> None:
    means = grouped_means(series, groups)
    assert len(means) == min(groups, len(series))
    finite = [value for value in series if math.isfinite(value)]
    if finite:
        slack = 1e-9 * max(map(abs, finite))
        known = [mean for mean in means if math.isfinite(mean)]
        assert min(finite) - slack <= min(known) <= max(known) <= max(finite) + slack


def test_a_falling_curve_goes_from_the_upper_left_to_the_lower_right() -> None:
    assert braille([3, 2, 1, 0], width=2, height=1) == ["⠑⢄"]


def test_a_constant_curve_is_a_level_line() -> None:
    assert braille([5.0] * 4, width=2, height=1) == ["⣀⣀"]


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    assert braille([1.0, math.nan, math.nan, 1.0], width=2, height=1) == ["⡀⢀"]


def test_a_curve_without_finite_values_is_blank() -> None:
    assert braille([math.nan], width=3, height=2) == ["⠀" * 3] * 2
