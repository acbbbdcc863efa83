"""The results as one self-contained HTML page, in the style of the runs' reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from observability.quantities import duration
from observability.report.page import template
from training.cluster.conformance.check import Result
from training.cluster.conformance.results.record import Earlier
from training.cluster.conformance.results.summary import Summary

_SHOWN_EARLIER = 20


def page(summary: Summary, history: Sequence[Earlier] = ()) -> str:
    """The page as HTML.

    Args:
        summary: the results.
        history: earlier runs of the suite, newest first.
    """
    facts = [
        ("environment", summary.env),
        ("platform", summary.platform),
        ("cluster", f"{summary.cluster}, {summary.endpoint}"),
        ("team", summary.team),
        ("job", f"{summary.job} on {summary.nodes}"),
        ("started", f"{summary.started:%Y-%m-%d %H:%M:%S} UTC"),
    ]
    return template("page.html.j2", "training.cluster.conformance.results").render(
        summary=summary,
        status="failed" if summary.count("failed") else "done",
        took=duration(summary.seconds),
        facts=facts,
        groups=[(name, [(one, duration(one.seconds)) for one in found]) for name, found in _grouped(summary.results)],
        failed=[one for one in summary.results if one.finding.verdict == "failed"],
        history=history[:_SHOWN_EARLIER],
    )


def write(html: str, file: Path) -> None:
    """Write the page, or replace it atomically, in a folder that exists.

    Raises:
        OSError: it cannot be written.
    """
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(html, encoding="utf-8")
    partial.replace(file)


def _grouped(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The results by the group of their check, in order."""
    found: dict[str, list[Result]] = {}
    for one in results:
        found.setdefault(one.check.name.partition(".")[0], []).append(one)
    return list(found.items())
