"""Every query returns data from a real Prometheus with a recording of every metric."""

from __future__ import annotations

import pytest

from observability.dashboards.catalog import DASHBOARDS
from observability.dashboards.preview.picture import View, results_of

pytestmark = pytest.mark.monitoring


def test_every_query_and_every_variable_of_a_dashboard_has_data(recorded: View) -> None:
    for dashboard in DASHBOARDS:
        empty = [
            f"'{panel.title}': {query.expression}"
            for panel in dashboard.panels
            for query, series in zip(panel.queries, results_of(panel, dashboard, recorded), strict=True)
            if not series
        ]
        assert empty == []
        for variable in dashboard.variables:
            selector = recorded.expression(variable.selector, dashboard)
            found = {one.labels.get(variable.label) for one in recorded.source.at(selector, recorded.end)}
            assert found - {None}, variable


def test_a_run_is_chosen_by_its_variables(recorded: View) -> None:
    (dashboard,) = [one for one in DASHBOARDS if one.uid == "rtp-run"]
    (panel,) = [one for one in dashboard.panels if one.title == "Progress"]
    chosen = View(source=recorded.source, end=recorded.end, seconds=600, values={"team": "vision"})
    (series,) = results_of(panel, dashboard, chosen)
    assert [one.labels["run"] for one in series] == ["resnet50-imagenet"]
