"""Line charts in text: Unicode Braille patterns with two by four dots per character."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of each dot by column and row of a cell, rows from the top (Unicode chart U2800)."""


def grouped_means(values: Sequence[float], groups: int) -> list[float]:
    """Means of at most `groups` consecutive groups of nearly equal size.

    A mean covers the finite values of its group; it is NaN if there are none.
    """
    count = min(groups, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)] if count else [0]
    means = []
    for start, end in pairwise(edges):
        finite = [value for value in values[start:end] if math.isfinite(value)]
        means.append(sum(finite) / len(finite) if finite else math.nan)
    return means


def braille(values: Sequence[float], *, width: int, height: int) -> list[str]:
    """Draw values from left to right on `width` x `height` characters, from the smallest at the bottom to the largest at the top.

    Returns:
        `height` lines of `width` characters; blank if no value is finite.
    """
    means = grouped_means(values, 2 * width)
    finite = [mean for mean in means if math.isfinite(mean)]
    cells = [[_BLANK] * width for _ in range(height)]
    if finite:
        low, high = min(finite), max(finite)
        rows = 4 * height - 1
        for index, mean in enumerate(means):
            if math.isfinite(mean):
                row = rows - round((mean - low) / (high - low) * rows) if high > low else rows
                column = index * 2 * width // len(means)
                cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
    return ["".join(map(chr, line)) for line in cells]
