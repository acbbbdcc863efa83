"""Formatting of quantities."""

from __future__ import annotations

import math

import pytest

from observability.quantities import clock, counted, duration, flop_rate, money, number, percent, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 ms"),
        (0.00162, "1.6 ms"),
        (0.0342, "34 ms"),
        (0.9996, "1.0 s"),
        (3.14, "3.1 s"),
        (59.96, "1 min 00 s"),
        (125.2, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (4350, "1 h 12 min"),
    ],
)
def test_a_duration_has_about_two_significant_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0.0, "$0.00"),
        (0.00002, "$0.00"),
        (0.0021, "$0.0021"),
        (0.0994, "$0.099"),
        (0.0996, "$0.10"),
        (1234.5, "$1,234.50"),
    ],
)
def test_small_amounts_of_money_have_two_significant_digits(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize(("seconds", "text"), [(7.4, "0:07"), (59.7, "1:00"), (750, "12:30"), (3900, "1:05:00")])
def test_a_clock_counts_whole_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(312, "312 B"), (1434, "1.4 KiB"), (104_857_600, "100.0 MiB"), (3 * 2**41, "6.0 TiB")]
)
def test_a_size_uses_binary_units(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0 FLOP/s"), (2.5e9, "2.5 GFLOP/s"), (999.7e9, "1 TFLOP/s"), (3.14e18, "3.14 EFLOP/s")]
)
def test_a_rate_of_flops_has_three_digits(rate: float, text: str) -> None:
    assert flop_rate(rate) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.975, "97.5 %"), (1, "100.0 %"), (math.nan, "nan %")])
def test_a_ratio_is_a_percentage(ratio: float, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("value", "text"), [(28_938, "28,938"), (5120.4, "5,120"), (12.34, "12.3"), (3.0, "3"), (math.inf, "inf")]
)
def test_a_number_has_separators(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "trial", "1 trial"),
        (0, "trial", "0 trials"),
        (16, "trial", "16 trials"),
        (2000, "sample", "2,000 samples"),
        (2, "micro-batch", "2 micro-batches"),
        (2, "epoch", "2 epochs"),
    ],
)
def test_a_noun_has_the_number_of_its_count(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
