"""The committed files are those of the dashboards, what they refer to exists, and what does not is refused with the nearest name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.models import units
from hypothesis import given
from hypothesis import strategies as st

from observability.alerts.catalog import ALERTS
from observability.dashboards.boards.runbooks import runbooks
from observability.dashboards.catalog import DASHBOARDS, all_dashboards
from observability.dashboards.check import DashboardError, check_dashboards
from observability.dashboards.files import FOLDER, files
from observability.dashboards.layout import places
from observability.dashboards.model import COLUMNS, Dashboard, Limit, Panel, Query, Row, TextPanel, Unit, Variable


@cache
def documents() -> dict[str, dict[str, Any]]:
    """The committed files by uid."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.json")}


def panels_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a document, without the titles of rows."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def addresses(document: dict[str, Any]) -> Iterator[str]:
    """Addresses of all links of panels and of what they show."""
    for panel in panels_of(document):
        for link in (*panel.get("links", []), *panel.get("fieldConfig", {}).get("defaults", {}).get("links", [])):
            yield link["url"]


def test_the_committed_files_are_current() -> None:
    """`python -m observability.dashboards` writes them."""
    assert {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()} == files()
    assert FOLDER.relative_to(Path(__file__).parents[3]).as_posix() == "platform_charts/objects/dashboards"


def test_ids_are_unique_and_stay_and_the_preview_places_panels_as_the_files_do() -> None:
    for dashboard in all_dashboards():
        document = documents()[dashboard.uid]
        ids = [panel["id"] for panel in document["panels"]]
        assert len(set(ids)) == len(ids)
        assert all(0 < one < 2**31 for one in ids)
        expected = {panel.title: panel.id for row in dashboard.rows for panel in row.panels}
        assert {panel["title"]: panel["id"] for panel in panels_of(document)} == expected
        placed = [
            {"x": place.left, "y": place.top, "w": place.width, "h": place.height}
            for place in places(dashboard)
            if isinstance(place.content, Panel | TextPanel)
        ]
        assert [panel["gridPos"] for panel in panels_of(document)] == placed


@given(st.lists(st.lists(st.tuples(st.integers(1, COLUMNS), st.integers(1, 20)), max_size=8), min_size=1, max_size=3))
def test_panels_of_any_size_lie_in_the_grid_and_over_no_other(rows: list[list[tuple[int, int]]]) -> None:
    made = [
        Row(title=f"{number}", panels=tuple(replace(panel(), width=width, height=height) for width, height in row))
        for number, row in enumerate(rows)
    ]
    taken = set[tuple[int, int]]()
    for place in places(replace(dashboard(), rows=tuple(made))):
        assert 0 <= place.left <= place.left + place.width <= COLUMNS
        cells = {
            (x, y)
            for x in range(place.left, place.left + place.width)
            for y in range(place.top, place.top + place.height)
        }
        assert not cells & taken
        taken |= cells


def test_a_panel_has_its_unit_queries_and_meaning_and_a_limit_is_that_of_its_alert() -> None:
    by_name = {alert.name: alert for alert in ALERTS}
    for dashboard in DASHBOARDS:
        found = {one["title"]: one for one in panels_of(documents()[dashboard.uid])}
        for panel in dashboard.panels:
            written = found[panel.title]
            assert written["fieldConfig"]["defaults"]["unit"] == panel.unit.value
            assert re.fullmatch(r".{15,}\.", written["description"], re.DOTALL), panel.title
            assert [target["expr"] for target in written["targets"]] == [query.expression for query in panel.queries]
            for limit in panel.limits:
                expression = by_name[limit.alert].expression
                operator = "<" if limit.is_lower else ">"
                assert re.search(rf"{operator}=? {re.escape(f'{limit.value}')}(?![\d.])", expression), expression


def test_the_queries_of_all_dashboards_are_right() -> None:
    assert len(check_dashboards(all_dashboards())) == sum(1 for one in DASHBOARDS for _ in one.panels) >= 100


def test_grafana_knows_the_units() -> None:
    known = {value for value in vars(units).values() if isinstance(value, str)}
    assert {unit.value for unit in Unit if not unit.value.startswith("suffix:")} <= known


def test_every_link_leads_to_a_dashboard_and_a_panel() -> None:
    found = documents()
    for document in found.values():
        for address in addresses(document):
            uid = re.findall(r"^/d/([\w-]+)\?", address)
            assert uid, address
            panel = re.findall(r"viewPanel=panel-(\d+)", address)
            assert set(map(int, panel)) <= {one["id"] for one in panels_of(found[uid[0]])}
            variables = {one["name"] for one in document["templating"]["list"]}
            assert set(re.findall(r"\$\{(\w+):queryparam\}", address)) <= variables
            opened = {one["name"] for one in found[uid[0]]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", address)) <= opened


def test_every_alert_has_a_panel_that_links_to_its_runbook() -> None:
    shown = {name for dashboard in DASHBOARDS for panel in dashboard.panels for name in panel.all_alerts}
    assert shown == {alert.name for alert in ALERTS}
    titles = {panel.title for row in runbooks().rows for panel in row.panels}
    assert titles == {alert.name for alert in ALERTS}


TEAM = Variable(name="team", title="Team", selector="kueue_cluster_queue_status", label="cluster_queue")


def panel(
    expression: str = "up", *, legend: str = "", title: str = "Tested", opens: str = "", alert: str = ""
) -> Panel:
    return Panel(
        title=title,
        description="For tests.",
        unit=Unit.COUNT,
        queries=(Query(expression=expression, legend=legend),),
        limits=(Limit(alert=alert, value=1),) if alert else (),
        opens=opens,
    )


def dashboard(*panels: Panel, variables: tuple[Variable, ...] = (TEAM,)) -> Dashboard:
    rows = (Row(title="Row", panels=panels),)
    return Dashboard(uid="tested", title="Tested", description="For tests.", rows=rows, variables=variables)


def test_the_labels_that_all_results_have_are_returned() -> None:
    queries = (Query(expression="max by (node, gpu) (DCGM_FI_DEV_GPU_TEMP)"), Query(expression="kube_node_info"))
    both = Panel(title="Both", description="Nodes.", unit=Unit.COUNT, queries=queries)
    assert check_dashboards([dashboard(both)]) == {both: frozenset({"node"})}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (panel("max(ray_rtp_train_los)"), "unknown metric 'ray_rtp_train_los'; did you mean 'ray_rtp_train_loss'"),
        (panel('up{namespace=~"$teams"}'), "unknown variable 'teams'; did you mean 'team'"),
        (panel("sum by (job) (up)", legend="{{jobs}}"), "unknown label 'jobs' in its legend: .*; did you mean 'job'"),
        (panel(alert="TrainingStaled"), "unknown alert 'TrainingStaled'; did you mean 'TrainingStalled'"),
        (panel(opens="teste"), "unknown dashboard 'teste'; did you mean 'tested'"),
    ],
)
def test_a_wrong_panel_is_refused(wrong: Panel, message: str) -> None:
    with pytest.raises(DashboardError, match=message):
        check_dashboards([dashboard(wrong)])


def test_a_wrong_variable_is_refused() -> None:
    for selector, label, message in (
        ("kube_node_inf", "node", "variable a: unknown metric 'kube_node_inf'"),
        ("kube_node_info", "nod", r"unknown label 'nod': .* mean 'node'\?"),
        ('up{pod=~"$b"}', "pod", r"\$b is not a variable before it"),
    ):
        variable = Variable(name="a", title="A", selector=selector, label=label)
        with pytest.raises(DashboardError, match=message):
            check_dashboards([dashboard(panel(), variables=(variable,))])


def test_all_errors_are_listed_and_names_are_unique() -> None:
    two = r"^2 errors in dashboards; correct them, .*\n.*metric 'a'.*\n.*metric 'b'"
    for dashboards, message in (
        ([dashboard(panel("a", title="A"), panel("b", title="B"))], two),
        ([dashboard(panel(), panel())], "'Tested': another panel has this title"),
        ([dashboard(panel()), dashboard(panel())], "tested: another dashboard has this uid"),
    ):
        with pytest.raises(DashboardError, match=message):
            check_dashboards(dashboards)
