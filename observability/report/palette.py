"""Colours of the plots as variables of the page's style sheet, so that one drawing serves light, dark and paper.

Matplotlib wants real colours; it is given stand-ins that nobody would draw with, which `themed` exchanges in the SVG's text.
"""

from __future__ import annotations

INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
CARD = "#010206"
TRAIN = "#010207"
VALIDATION = "#010208"
TEST = "#010209"
PART_COLOURS = ("#01020a", "#01020b", "#01020c", "#01020d", "#01020e", "#01020f")
"""For the parts of a step's time, in the order of `observability.history.PARTS`."""

PART_VARIABLES = tuple(f"--part-{index}" for index in range(len(PART_COLOURS)))

_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    CARD: "--card",
    TRAIN: "--train",
    VALIDATION: "--validation",
    TEST: "--test",
    **dict(zip(PART_COLOURS, PART_VARIABLES, strict=True)),
}


def themed(svg: str) -> str:
    """The drawing with its stand-ins exchanged for the page's variables."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
