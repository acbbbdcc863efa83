"""docs/RUNBOOKS.md has a section for each alert, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from observability.alerts.catalog import ALERTS
from observability.alerts.model import RUNBOOKS
from observability.metrics.scraped import series_by_name

_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_DOCUMENT = Path(__file__).parents[3] / RUNBOOKS
_RECORDED = r"\w+:\w+:\w+"


def test_every_alert_links_to_a_section_that_explains_confirms_and_says_what_to_do() -> None:
    """GitHub and GitLab make the anchor of a title by lower case."""
    sections = _SECTION.findall(_DOCUMENT.read_text(encoding="utf-8"))
    assert sorted(title for title, _ in sections) == sorted(alert.name for alert in ALERTS)
    for title, text in sections:
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Means", "Confirm", "Do"], title
        assert re.search(r"^    (?:kubectl|make|promtool|aws) ", text, re.MULTILINE), title
    for alert in ALERTS:
        annotations = alert.manifest()["annotations"]
        assert isinstance(annotations, dict)
        assert annotations["runbook"] == f"{RUNBOOKS}#{alert.name.lower()}"


def test_the_queries_select_metrics_that_exist() -> None:
    queries = re.findall(r"promtool query instant \$PROM '(.*)'", _DOCUMENT.read_text(encoding="utf-8"))
    used = {
        name
        for query in queries
        for name in re.findall(r"\b(?:ray_|DCGM_|kube)\w+|\bup\b", re.sub(_RECORDED, "", query))
    }
    exported = set(series_by_name()) | {"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"}
    assert used - exported == set()
