"""How the reports' plots are drawn: matplotlib's style, sizes, and SVG whose colours are CSS variables of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from observability.report.palette import CARD, GRID, INK, MUTED, light_colours, with_css_vars

HALF_WIDTH = (6.0, 3.3)
"""Width and height of a plot that takes half of the page, in inches."""

FULL_WIDTH = (12.4, 3.1)
"""Width and height of a plot that takes the whole width of the page, in inches."""

_STYLE = {
    "svg.fonttype": "none",
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0.015,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.facecolor": CARD,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.labelcolor": INK,
    "font.size": 9.0,
    "font.family": "sans-serif",
}


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot of the page.

    Attributes:
        key: identifier, unique in the page.
        svg: an `<svg>` element whose colours are CSS variables of the page.
        note: text below the plot; may be empty.
        is_wide: the plot takes the full width of the page.
    """

    key: str
    title: str
    svg: str
    note: str = ""
    is_wide: bool = False

    def _repr_html_(self) -> str:
        """The plot in a notebook, which calls this by name: in the page's light colours."""
        colours = "; ".join(f"{name}: {colour}" for name, colour in light_colours().items())
        title, note = escape(self.title), escape(self.note)
        style = f"{colours}; background: var(--card); color: var(--ink); padding: 8px 12px; max-width: {1100 if self.is_wide else 560}px"
        return f'<div style="{style}"><b>{title}</b>{self.svg}<div style="color: var(--muted)">{note}</div></div>'


@contextmanager
def figure_of(size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of this width and height in inches, in the reports' style."""
    with mpl.rc_context(_STYLE):
        yield Figure(figsize=size, layout="constrained")


def svg_of(figure: Figure, name: str) -> str:
    """Render a figure as an `<svg>` element for a page: without prolog, metadata, fixed size and group ids."""
    with mpl.rc_context({"svg.hashsalt": name}):
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Creator": None, "Date": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return with_css_vars(text.replace("<svg", f'<svg role="img" aria-label="{name}"', 1))
