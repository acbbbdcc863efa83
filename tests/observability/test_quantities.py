"""Quantities as text, and line charts in Braille patterns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.curves import braille, grouped_means
from observability.quantities import clock, counted, duration, flop_rate, money, number, percent, size


@pytest.mark.parametrize(
    ("text_of", "values", "texts"),
    [
        (duration, [0.0, 0.00162, 0.0342, 0.9996, 3.14], ["0.0 ms", "1.6 ms", "34 ms", "1.0 s", "3.1 s"]),
        (duration, [59.96, 125.2, 3599.6, 4350], ["1 min 00 s", "2 min 05 s", "1 h 00 min", "1 h 12 min"]),
        (
            money,
            [0.0, 0.00002, 0.0021, 0.0994, 0.0996, 1234.5],
            ["$0.00", "$0.00", "$0.0021", "$0.099", "$0.10", "$1,234.50"],
        ),
        (clock, [7.4, 59.7, 750, 3900], ["0:07", "1:00", "12:30", "1:05:00"]),
        (size, [312, 1434, 104_857_600, 3 * 2**41], ["312 B", "1.4 KiB", "100.0 MiB", "6.0 TiB"]),
        (flop_rate, [0.0, 2.5e9, 999.7e9, 3.14e18], ["0 FLOP/s", "2.5 GFLOP/s", "1 TFLOP/s", "3.14 EFLOP/s"]),
        (percent, [0.975, 1, math.nan], ["97.5 %", "100.0 %", "nan %"]),
        (number, [28_938, 5120.4, 12.34, 3.0, math.inf], ["28,938", "5,120", "12.3", "3", "inf"]),
    ],
)
def test_a_quantity_has_its_unit_and_about_two_or_three_digits(
    text_of: Callable[[float], str], values: list[float], texts: list[str]
) -> None:
    assert [text_of(value) for value in values] == texts


def test_a_noun_has_the_number_of_its_count() -> None:
    assert [counted(count, "trial") for count in (1, 0, 16)] == ["1 trial", "0 trials", "16 trials"]
    assert [counted(2, "micro-batch"), counted(2, "epoch")] == ["2 micro-batches", "2 epochs"]
    assert counted(2000, "sample") == "2,000 samples"


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


def test_a_curve_falls_or_is_level_and_values_that_are_not_finite_leave_gaps() -> None:
    for series, width, height, lines in (
        ([3, 2, 1, 0], 2, 1, ["⠑⢄"]),
        ([5.0] * 4, 2, 1, ["⣀⣀"]),
        ([1.0, math.nan, math.nan, 1.0], 2, 1, ["⡀⢀"]),
        ([math.nan], 3, 2, ["⠀" * 3] * 2),
    ):
        assert braille(series, width=width, height=height) == lines
