"""The results in a terminal: a line for each check as it is made, and a table at the end."""

from __future__ import annotations

from observability.quantities import duration
from training.cluster.conformance.check import Result
from training.cluster.conformance.results.summary import Summary

_WORDS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


def progress_line(result: Result) -> str:
    """One line: verdict, check, and what was found unless it is as expected."""
    finding = result.finding
    return f"{_WORDS[finding.verdict]:<8}{result.check.name:<20}{finding.found}"


def table(summary: Summary) -> str:
    """All checks with their times, those that failed with what was expected, and the counts."""
    rows = [(one.check.name, one.finding.verdict, duration(one.seconds), one.check.title) for one in summary.results]
    headings = ("check", "verdict", "took", "")
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]).rstrip()
        for row in (headings, *rows)
    ]
    for one in summary.results:
        if one.finding.verdict == "failed":
            lines += ["", f"{one.check.name}: {one.check.title}"]
            lines += [f"  expected  {one.finding.expected}", f"  found     {one.finding.found}"]
    if summary.fakes:
        lines += ["", f"note: {summary.fakes}"]
    return "\n".join([*lines, "", f"conformance of {summary.env}: {summary.title}, in {duration(summary.seconds)}"])
