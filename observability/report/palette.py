"""Plot colours as CSS variables of the page, so that one SVG works in light mode, dark mode and print.

Matplotlib needs real colours, so it draws with the placeholder colours below, and `with_css_vars` replaces them in the SVG.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
CARD = "#010206"
TRAIN = "#010207"
VALIDATION = "#010208"
TEST = "#010209"
BAD = "#010210"
PART_COLOURS = ("#01020a", "#01020b", "#01020c", "#010211", "#01020d", "#01020e", "#01020f")
"""Colours of the parts of step time, in the order of `observability.history.PARTS`."""

PART_VARIABLES = tuple(f"--part-{index}" for index in range(len(PART_COLOURS)))

_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    CARD: "--card",
    TRAIN: "--train",
    VALIDATION: "--validation",
    TEST: "--test",
    BAD: "--bad",
    **dict(zip(PART_COLOURS, PART_VARIABLES, strict=True)),
}


def with_css_vars(svg: str) -> str:
    """Replace the placeholder colours of an SVG with CSS variables."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg


@cache
def light_colours() -> dict[str, str]:
    """The page's CSS variables in light mode."""
    style = Path(__file__).with_name("style.css.j2").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", style.partition("}")[0]))
