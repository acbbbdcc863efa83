"""Boxes, text and arrows on the sheet of a picture, and its colours."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

INK, FAINT, PAPER = "#1f2933", "#667784", "#ffffff"
LINE, GUARD = "#9fb0be", "#b3541e"

UNITS_PER_INCH = 10.0
_POINTS_PER_UNIT = 72 / UNITS_PER_INCH
_HINTING = 1.04


class Sheet:
    """Draws in units of 0.1 inch; y grows upwards."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        edge: str = LINE,
        line: float = 1.0,
        radius: float = 1.0,
    ) -> None:
        """A rounded box from its lower left corner."""
        style = f"round,pad=0,rounding_size={radius}"
        patch = FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=line)
        self._axes.add_patch(patch)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 8,
        bold: bool = False,
        color: str = INK,
        align: str = "left",
    ) -> None:
        """Text with its upper edge at y."""
        weight = "bold" if bold else "normal"
        self._axes.text(x, y, text, fontsize=size, fontweight=weight, color=color, ha=align, va="top", linespacing=1.35)

    def path(self, points: Sequence[tuple[float, float]], *, color: str) -> None:
        """A line through these points."""
        across, up = zip(*points, strict=True)
        self._axes.plot(across, up, color=color, linewidth=1.3, solid_joinstyle="round", zorder=1.4)

    def arrow(self, start: tuple[float, float], end: tuple[float, float], *, color: str) -> None:
        """A line with a head at its end."""
        shape = {"arrowstyle": "-|>", "color": color, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
        self._axes.annotate("", xy=end, xytext=start, arrowprops=shape, zorder=1.5)

    def dot(self, x: float, y: float, *, color: str) -> None:
        """Where a line leaves a box."""
        self._axes.plot([x], [y], marker="o", markersize=3.5, color=color, zorder=1.6)


def text_width(text: str, *, size: float, bold: bool = False) -> float:
    """Width of a line of text in units of the sheet, with the little that hinting adds at low resolution."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    points: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return points * _HINTING / _POINTS_PER_UNIT


def fitted(text: str, width: float, *, size: float) -> float:
    """The size at which a bold line of text fits into a width; `size` where it does anyway."""
    return min(size, size * width / text_width(text, size=size, bold=True))


def wrapped(text: str, width: float, *, size: float) -> tuple[str, ...]:
    """The text in lines that fit into a width; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size=size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return tuple(lines)
