"""The runbooks inside Grafana, so that a panel's link to one needs no access to the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from observability.alerts.catalog import ALERTS
from observability.alerts.model import RUNBOOKS
from observability.dashboards.model import Dashboard, Row, TextPanel, stable_id

UID = "rtp-runbooks"

_DOCUMENT = Path(__file__).parents[3] / RUNBOOKS
_CHAPTER = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)


def runbook_address(alert: str) -> str:
    """Path in Grafana of an alert's section; the variables of the dashboard that links to it are kept."""
    return f"/d/{UID}?viewPanel=panel-{stable_id(alert)}"


def runbooks() -> Dashboard:
    """A panel for each section of the document, in its chapters."""
    return Dashboard(
        uid=UID,
        title="Runbooks",
        description="What does an alert mean, how is it confirmed, and what is to be done?",
        rows=tuple(_rows(_DOCUMENT.read_text(encoding="utf-8"))),
    )


def _rows(document: str) -> Iterator[Row]:
    actions = {alert.name: alert.action for alert in ALERTS}
    for chapter, body in _CHAPTER.findall(document):
        sections = _SECTION.findall(body)
        panels = tuple(
            TextPanel(title=name, text=f"**First.** {actions[name]}\n\n{text.strip()}", width=12, height=10)
            for name, text in sections
        )
        if panels:
            yield Row(title=chapter, panels=panels)
