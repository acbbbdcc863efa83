"""Arithmetic on sets of points in time, each a sorted list of disjoint intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]
"""Start and end of an interval, in any unit of time."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The points that any of the intervals has; they may overlap and come in any order. Empty intervals vanish."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersection(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """The points that both sets have."""
    common: list[Span] = []
    one = other = 0
    while one < len(first) and other < len(second):
        start = max(first[one][0], second[other][0])
        end = min(first[one][1], second[other][1])
        if start < end:
            common.append((start, end))
        if first[one][1] < second[other][1]:
            one += 1
        else:
            other += 1
    return common


def difference(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """The points of the first set that the second does not have."""
    left: list[Span] = []
    other = 0
    for start, end in first:
        begin = start
        while other < len(second) and second[other][1] <= begin:
            other += 1
        index = other
        while index < len(second) and second[index][0] < end:
            if begin < second[index][0]:
                left.append((begin, second[index][0]))
            begin = max(begin, second[index][1])
            index += 1
        if begin < end:
            left.append((begin, end))
    return left


def length(spans: Iterable[Span]) -> float:
    """The total length of disjoint intervals."""
    return sum(end - start for start, end in spans)
