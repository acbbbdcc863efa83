"""Arithmetic on intervals, checked point by point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from observability.profiling.intervals import Span, difference, intersection, length, union

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def points(spans: Sequence[tuple[float, float]]) -> set[int]:
    """The whole numbers n of which [n, n + 1) is within an interval."""
    return {point for start, end in spans for point in range(round(start), round(end))}


def assert_is_canonical(spans: Sequence[Span]) -> None:
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


@given(SPANS)
def test_a_union_has_the_points_of_its_intervals_once(spans: list[Span]) -> None:
    found = union(spans)
    assert_is_canonical(found)
    assert points(found) == points(spans)
    assert length(found) == len(points(spans))


@given(SPANS, SPANS)
def test_intersection_and_difference_split_a_set(first: list[Span], second: list[Span]) -> None:
    one, other = union(first), union(second)
    both, left = intersection(one, other), difference(one, other)
    assert_is_canonical(both)
    assert_is_canonical(left)
    assert points(both) == points(first) & points(second)
    assert points(left) == points(first) - points(second)
