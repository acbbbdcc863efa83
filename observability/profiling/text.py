"""An analysis as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from observability.profiling.analysis import Analysis
from observability.profiling.breakdown import RankTime
from observability.quantities import duration, percent, size

HEADINGS = ("rank", "step", "data", "checkpoint", "compute", "transfer", "waiting", "overhead", "hidden comm.", "idle")
"""Of `rank_row`."""


def describe(analysis: Analysis, *, run: str) -> str:
    """The verdict, a table of the ranks, and where to look further; several lines.

    Args:
        analysis: of a profile.
        run: path of the run's folder.
    """
    verdict = analysis.verdict
    slow = slowest_rank(analysis)
    lines = [
        f"{analysis.window.title}: {verdict.sentence}",
        f"  try first: {verdict.advice}",
        *(f"  also: {other}" for other in verdict.others),
        *_table([HEADINGS, *map(rank_row, analysis.ranks)]),
        *top_operators(slow),
        *(f"  {problem}" for problem in analysis.problems),
        f"  traces     {run}/{analysis.folder}  (open them in https://ui.perfetto.dev)",
    ]
    return "\n".join(lines)


def slowest_rank(analysis: Analysis) -> RankTime:
    """The rank that waits least for others."""
    return max(analysis.ranks, key=lambda rank: rank.own)


def rank_row(rank: RankTime) -> tuple[str, ...]:
    """A rank's mean step: its duration, what took which share of it, and how much of the communication computation hides."""
    parts = (rank.data, rank.checkpoint, rank.compute, rank.transfer, rank.waiting, rank.overhead)
    hidden = 1 - (rank.transfer + rank.waiting) / rank.communication if rank.communication else None
    return (
        str(rank.rank),
        duration(rank.step),
        *(percent(part / rank.step) for part in parts),
        "none" if hidden is None else percent(max(0.0, hidden)),
        percent(rank.idle / rank.step),
    )


def top_operators(rank: RankTime) -> list[str]:
    """The operators of a rank that took longest, in two lines; none without any."""
    if not rank.top:
        return []
    named = ", ".join(f"{one.name} {duration(one.seconds)} ({one.count}x)" for one in rank.top)
    where = "GPU" if rank.on_gpu else "CPU"
    memory = f"; at most {size(rank.peak_bytes)} of GPU memory" if rank.peak_bytes else ""
    return [
        f"  rank {rank.rank} runs {rank.operators:,.0f} operators a step on the {where}{memory}; the longest: {named}"
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
