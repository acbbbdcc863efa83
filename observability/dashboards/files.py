"""The files of the dashboards.

They are committed, because the stack imports nothing of `observability`, and so that a change is seen in review. A test compares them
with the dashboards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from observability.dashboards.catalog import all_dashboards
from observability.dashboards.check import check_dashboards
from observability.dashboards.render import Context, rendered

FOLDER = Path(__file__).parents[2] / "platform_charts" / "objects" / "dashboards"


def files() -> Mapping[str, str]:
    """The files by name.

    Raises:
        DashboardError: a dashboard uses a metric, a label, an alert or a dashboard that does not exist.
    """
    dashboards = all_dashboards()
    context = Context({dashboard.uid: dashboard for dashboard in dashboards}, check_dashboards(dashboards))
    return {f"{dashboard.uid}.json": rendered(dashboard, context) for dashboard in dashboards}


def write_files() -> None:
    """Write all files, and remove those of dashboards that are no more."""
    found = files()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        if old.name not in found:
            old.unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
