"""The post-mortem as one self-contained page, and as a short text for the terminal."""

from __future__ import annotations

from pathlib import Path

from observability.postmortem import tables
from observability.postmortem.case import Case, State
from observability.postmortem.causes import first_cause
from observability.postmortem.timeline import draw
from observability.report import facts
from observability.report.page import template

_STATUS: dict[State, str] = {
    "runs": "running",
    "done": "done",
    "failed": "failed",
    "stopped": "interrupted",
    "deleted": "failed",
    "killed": "failed",
}
"""The report's class of each state, which has the colour."""

_SHOWN_PODS, _SHOWN_EVENTS, _SHOWN_LINES = 12, 8, 12


def render(case: Case) -> str:
    """The page as HTML."""
    record, history, cause = case.record, case.history, first_cause(case)
    return template("postmortem.html.j2", "observability.postmortem").render(
        case=case,
        status=_STATUS[case.state],
        cause=cause,
        cause_time=tables.moment(cause.time),
        timeline=draw(case),
        facts=tables.facts(case),
        figures=facts.headline_figures(history) if history is not None and history.steps else [],
        goodput=facts.goodput_shares(history.goodput) if history is not None else [],
        reports=[(tables.moment(one.time), one.text) for one in case.reports],
        earlier=[(tables.moment(one.created), one.summary) for one in case.earlier],
        tables=[
            ("Pods", tables.POD_HEADINGS, tables.pod_rows(record) if record else []),
            ("Ray", tables.RAY_HEADINGS, tables.ray_rows(case)),
            ("Events", tables.EVENT_HEADINGS, tables.event_rows(record) if record else []),
            ("Status of the RayJob", tables.STATUS_HEADINGS, tables.status_rows(record) if record else []),
        ],
        message=record.message if record else "",
    )


def summary(case: Case) -> str:
    """The state, its cause, and what to do about it."""
    cause = first_cause(case)
    when = f" at {tables.moment(cause.time)} UTC" if cause.time else ""
    parts = [
        f"{'job' if case.is_job else 'run'} {case.name}: {case.state}",
        f"{'' if case.state in {'done', 'runs'} else 'cause: '}{cause.sentence}{when}",
    ]
    if cause.remedy:
        parts.append(f"  remedy: {cause.remedy}")
    return "\n".join(parts)


def text(case: Case) -> str:
    """What matters most, for the terminal."""
    parts = [summary(case)]
    record = case.record
    if record is not None and (pods := tables.pod_rows(record)):
        shown = [tables.POD_HEADINGS, *pods[:_SHOWN_PODS]]
        picked = [tuple(row[index] for index in (0, 2, 5, 7, 9)) for row in shown]
        parts += ["", tables.text_table(picked), *_more(len(pods), _SHOWN_PODS, "pods")]
    warnings = [row for row in tables.event_rows(record) if row[3] == "Warning"] if record else []
    if warnings:
        parts += ["", *(f"{row[0]}  {row[2]}: {row[4]}: {row[5]}" for row in warnings[:_SHOWN_EVENTS])]
        parts += _more(len(warnings), _SHOWN_EVENTS, "warnings")
    for one in case.ray:
        parts.append(
            f"Ray, attempt {one.attempt}: {one.what} {one.state}{f': {tables.shortened(one.why)}' if one.why else ''}"
        )
    parts += [f"earlier: {tables.moment(one.created)}  {one.summary}" for one in case.earlier]
    if case.logs and case.logs[0].lines:
        parts += ["", f"{case.logs[0].title}:", *(f"  {line}" for line in case.logs[0].lines[-_SHOWN_LINES:])]
    return "\n".join(parts)


def write(case: Case, path: Path) -> None:
    """Write the page, or replace it atomically; makes its folder.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(render(case), encoding="utf-8")
    partial.replace(path)


def _more(count: int, shown: int, what: str) -> list[str]:
    return [f"… and {count - shown} more {what} on the page"] if count > shown else []
