"""The calendar as a picture: a row for each window and each job in it, windows as bands behind the bars of their jobs."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from infra.lifecycle.capacity.calendar import Calendar
from infra.lifecycle.capacity.need import utc
from infra.lifecycle.capacity.offers import NAMES
from infra.lifecycle.capacity.placing import Fit
from infra.lifecycle.capacity.timeline import findings, span_of
from infra.lifecycle.capacity.windows import Window

_INK, _FAINT, _GRID = "#1f2933", "#667784", "#d3dae0"
_WINDOW, _EDGE = "#bfe3c0", "#5f9e63"
_RUNS, _WAITS, _LATE = "#3b6ea5", "#a9c4e0", "#c8502d"
_TICKS = ["%Y", "%b", "%b %d", "%H:%M", "%H:%M", "%H:%M"]
_TICKS_AT_ZERO = ["%Y", "%Y", "%b %d", "%b %d", "%H:%M", "%H:%M"]
"""Formats of years, months, days, hours, minutes and seconds, and of the first of each."""

_BAND, _BAR = 0.84, 0.44
_ROW_INCHES, _MARGIN_INCHES = 0.44, 1.4
_NAME = 34
"""Characters of a label that are shown."""


def write_picture(calendar: Calendar, file: Path, *, environment: str) -> None:
    """Write the calendar as a picture, or as a page with the picture and its findings.

    Args:
        calendar: the calendar.
        file: output file; the suffix sets the format: .svg, .html, .png or .pdf.
        environment: name of the environment.

    Raises:
        OSError: the file cannot be written.
    """
    figure = draw(calendar, environment=environment)
    # A fixed salt for IDs and no date, so that an unchanged calendar gives an identical file.
    with rc_context({"svg.hashsalt": environment}):
        if file.suffix == ".html":
            file.write_text(_page(figure, calendar, environment), encoding="utf-8")
        else:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)


def draw(calendar: Calendar, *, environment: str) -> Figure:
    """Draw a row for each window and each job in it."""
    rows: list[Window | Fit] = []
    for window in calendar.windows:
        rows += [window, *calendar.jobs_in(window)]
    figure = Figure(
        figsize=(12, _MARGIN_INCHES + _ROW_INCHES * max(len(rows), 2)), facecolor="white", layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    first, last = span_of(calendar)
    for number, row in enumerate(rows):
        if isinstance(row, Window):
            _band(axes, row, number, calendar, (first, last))
        else:
            _bar(axes, row, number, last)
    if not rows:
        axes.text(0.5, 0.5, "nothing is reserved", transform=axes.transAxes, ha="center", va="center", color=_FAINT)
    _axis(axes, rows, calendar, (first, last))
    _legend(figure)
    axes.set_title(f"Reserved capacity of {environment}, {utc(calendar.now)}", loc="left", color=_INK, fontsize=12)
    return figure


def _band(axes: Axes, window: Window, row: int, calendar: Calendar, span: tuple[datetime, datetime]) -> None:
    """The window's time, behind the rows of its jobs; an outline with its state if it may never have nodes."""
    starts, ends = window.starts or span[0], min(window.nodes_until or span[1], span[1])
    height = len(calendar.jobs_in(window)) + _BAND
    if ends > starts:
        axes.barh(
            row - _BAND / 2 + height / 2,
            _number(ends) - _number(starts),
            left=_number(starts),
            height=height,
            color=_WINDOW if window.has_capacity else "none",
            edgecolor=_EDGE if window.has_capacity else _LATE,
            linewidth=0.8,
            linestyle="-" if window.has_capacity else (0, (4, 3)),
            zorder=1,
        )
    if not window.has_capacity:
        at = max(starts, span[0]) if ends > starts else calendar.now
        axes.text(_number(at), row, f"  {window.state}", va="center", color=_LATE, fontsize=8)


def _bar(axes: Axes, fit: Fit, row: int, last: datetime) -> None:
    """The time until the deadline; what of it has no nodes is in another colour."""
    ends = last if fit.ends is None else fit.ends
    until = ends if fit.nodes_until is None else min(ends, fit.nodes_until)
    parts = [(fit.starts, until, _RUNS if fit.job.state == "runs" else _WAITS), (until, ends, _LATE)]
    for begins, stops, color in parts:
        if stops > begins:
            width = _number(stops) - _number(begins)
            axes.barh(row, width, left=_number(begins), height=_BAR, color=color, zorder=3)


def _axis(axes: Axes, rows: list[Window | Fit], calendar: Calendar, span: tuple[datetime, datetime]) -> None:
    axes.set_yticks(range(len(rows)), [_label(one) for one in rows], fontsize=8, color=_INK)
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if isinstance(row, Window) else "normal")
    axes.set_ylim(max(len(rows), 2) - 0.4, -0.6)
    axes.set_xlim(_number(span[0]), _number(span[1]))
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=UTC, formats=_TICKS, zero_formats=_TICKS_AT_ZERO, show_offset=False)
    )
    axes.tick_params(axis="both", length=0, labelcolor=_INK, labelsize=8)
    axes.grid(axis="x", color=_GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.axvline(_number(calendar.now), color=_INK, linewidth=1.2, linestyle=(0, (3, 2)), zorder=5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    axes.set_xlabel("UTC; the dashed line is now", fontsize=8, color=_FAINT, loc="right")


def _legend(figure: Figure) -> None:
    kinds = {
        "reserved nodes": _WINDOW,
        "job that runs, until its deadline": _RUNS,
        "job that waits, from the start that is sure": _WAITS,
        "without nodes": _LATE,
    }
    handles = [Patch(color=color) for color in kinds.values()]
    figure.legend(handles, list(kinds), loc="outside lower left", ncols=4, frameon=False, fontsize=8, labelcolor=_FAINT)


def _label(row: Window | Fit) -> str:
    """What a row is: of a window also what it holds, and its ID."""
    if isinstance(row, Window):
        what = f"{NAMES[row.kind]}, {row.nodes} x {row.instance_type}"
        return f"{_short(row.group or 'no group')}\n{what}\n{row.id}, {row.zone}"
    return f"{_short(f'{row.job.team}/{row.job.name}')}  {_gpus(row.job.gpus)}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _number(moment: datetime) -> float:
    """A moment in matplotlib's unit, days."""
    return float(date2num(moment))


def _page(figure: Figure, calendar: Calendar, environment: str) -> str:
    """A self-contained page."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    picture = drawn.getvalue().partition("<svg")
    title = html.escape(f"Reserved capacity of {environment}")
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{font:15px/1.5 system-ui,sans-serif;color:#1f2933;max-width:75rem;margin:2rem auto;padding:0 1rem}"
        "svg{width:100%;height:auto}</style>\n"
        f"{picture[1]}{picture[2]}\n<ul>\n{''.join(_items(findings(calendar)))}</ul>\n</html>\n"
    )


def _items(lines: Iterable[str]) -> Iterable[str]:
    return (f"<li>{html.escape(line)}</li>\n" for line in lines)
