"""Curves drawn in text, two by four dots a character (Unicode's Braille patterns)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of the dot in the column and row of a cell, rows from the top (Unicode chart U2800)."""


def grouped_means(values: Sequence[float], groups: int) -> list[float]:
    """Means of consecutive, nearly equal groups, at most `groups` of them; what is NaN or infinite in a group is left out of its mean.

    A group without a finite value is NaN.
    """
    count = min(groups, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)] if count else [0]
    means = []
    for start, end in pairwise(edges):
        finite = [value for value in values[start:end] if math.isfinite(value)]
        means.append(sum(finite) / len(finite) if finite else math.nan)
    return means


def braille(values: Sequence[float], *, width: int, height: int) -> list[str]:
    """The values from left to right over `width` x `height` characters, the smallest at the bottom and the largest at the top.

    Returns:
        `height` lines of `width` characters; blank where no value is finite.
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
