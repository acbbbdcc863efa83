"""The report's section on the newest profile: the verdict, and where the time of each rank's steps goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.ticker import PercentFormatter

from observability.profiling.analysis import Analysis, kept_analysis
from observability.profiling.breakdown import RankTime
from observability.profiling.text import HEADINGS, rank_row, slowest_rank, top_operators
from observability.quantities import duration
from observability.report.drawing import FULL_WIDTH, figure_of, svg_of
from observability.report.palette import INK, MUTED, PART_COLOURS

SHOWN_RANKS = 16
"""Ranks in the plot and the table: those that keep the others waiting come first."""

_DATA, _COMPUTE, _, _TRANSFER, _WAITING, _CHECKPOINT, _OVERHEAD = PART_COLOURS
"""As in the plot of the parts of step time, where a part has a match there."""


@dataclass(frozen=True, kw_only=True)
class ProfileSection:
    """What the section shows, as text, rows and an SVG; `notes` are lines below the table."""

    title: str
    sentence: str
    advice: str
    others: Sequence[str]
    svg: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def profile_section(run_directory: Path) -> ProfileSection | None:
    """The section; None if no profile of the run has been analysed."""
    analysis = kept_analysis(run_directory)
    if analysis is None:
        return None
    shown = _shown(analysis)
    more = len(analysis.ranks) - len(shown)
    return ProfileSection(
        title=f"Profile of {analysis.window.title}",
        sentence=analysis.verdict.sentence,
        advice=analysis.verdict.advice,
        others=analysis.verdict.others,
        svg=_bars(shown),
        headings=HEADINGS,
        rows=[rank_row(rank) for rank in shown],
        notes=[
            *([f"{more} more ranks, which wait longer for others, are not shown."] if more else []),
            *(line.strip() for line in top_operators(slowest_rank(analysis))),
            *analysis.problems,
            f"Traces: {analysis.folder}; https://ui.perfetto.dev shows them.",
        ],
    )


def _shown(analysis: Analysis) -> list[RankTime]:
    chosen = sorted(analysis.ranks, key=lambda rank: -rank.own)[:SHOWN_RANKS]
    return sorted(chosen, key=lambda rank: rank.rank)


def _bars(ranks: Sequence[RankTime]) -> str:
    """A bar per rank: what takes which share of its mean step."""
    parts = [
        ("data", _DATA, [rank.data for rank in ranks]),
        ("checkpoint", _CHECKPOINT, [rank.checkpoint for rank in ranks]),
        ("compute", _COMPUTE, [rank.compute for rank in ranks]),
        ("transfer", _TRANSFER, [rank.transfer for rank in ranks]),
        ("waiting for ranks", _WAITING, [rank.waiting for rank in ranks]),
        ("overhead of the host", _OVERHEAD, [rank.overhead for rank in ranks]),
    ]
    with figure_of((FULL_WIDTH[0], 1.1 + 0.3 * len(ranks))) as figure:
        axes = figure.subplots()
        left = [0.0] * len(ranks)
        for label, colour, seconds in parts:
            shares = [value / rank.step for value, rank in zip(seconds, ranks, strict=True)]
            axes.barh(range(len(ranks)), shares, left=left, color=colour, height=0.62, label=label)
            left = [before + share for before, share in zip(left, shares, strict=True)]
        for row, rank in enumerate(ranks):
            axes.annotate(
                duration(rank.step),
                (left[row], row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                fontsize=8.5,
            )
        axes.set_yticks(range(len(ranks)), [f"rank {rank.rank}" for rank in ranks])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1.08)
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1))
        axes.set_xlabel("share of a step")
        figure.legend(loc="outside upper center", ncols=len(parts), fontsize=8.5)
        return svg_of(figure, "time of a step by rank")
