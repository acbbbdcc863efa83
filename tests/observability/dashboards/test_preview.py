"""The pictures of dashboards from a real Prometheus, in which every query has data, and what the command refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infra.spec.errors import ExitStatus, PlatformError
from observability.dashboards.__main__ import COMMANDS
from observability.dashboards.catalog import DASHBOARDS
from observability.dashboards.model import Chart, Unit
from observability.dashboards.preview.picture import View, draw_dashboard, results_of
from observability.dashboards.preview.source import MetricsSource
from observability.dashboards.preview.units import shown, ticks
from tests.engines import prometheus
from tests.observability.dashboards import recording

pytestmark = pytest.mark.monitoring

_END = 1_789_999_140.0
_HOURS = 119 / 60
"""All of one block of Prometheus, which has two hours. promtool 2.42 refuses more than about a thousand series that extend over two
blocks: it takes samples in the second one to be out of order."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """Every metric of the inventory, for some hours of a made-up cluster."""
    folder = tmp_path_factory.mktemp("recorded")
    recording.write(folder / "samples.txt", end=_END, hours=_HOURS)
    with prometheus.recorded(folder / "samples.txt", folder=folder) as server:
        yield View(source=MetricsSource(server.url), end=_END, seconds=_HOURS * 3600, values={})


def test_a_dashboard_is_drawn_with_the_data_of_prometheus(recorded: View, tmp_path: Path) -> None:
    (dashboard,) = [one for one in DASHBOARDS if one.uid == "rtp-fleet"]
    assert {panel.chart for panel in dashboard.panels} == set(Chart)
    draw_dashboard(dashboard, recorded, tmp_path / "with.png")
    nothing = View(source=recorded.source, end=recorded.end, seconds=3600, values={"team": "nobody"})
    draw_dashboard(dashboard, nothing, tmp_path / "without.png")
    with Image.open(tmp_path / "with.png") as full, Image.open(tmp_path / "without.png") as empty:
        assert full.size == empty.size
    assert (tmp_path / "with.png").stat().st_size > (tmp_path / "without.png").stat().st_size


def test_a_query_that_prometheus_refuses_is_named_with_its_answer(recorded: View) -> None:
    with pytest.raises(PlatformError, match=r"refused sum\(: .*parse error"):
        recorded.source.at("sum(", recorded.end)


def test_wrong_options_are_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value, message in (
        ("--only", "rtp-runn", "unknown dashboard 'rtp-runn'\n  remedy: one of rtp-fleet, rtp-run"),
        ("--var", "teem=a", "unknown variable 'teem'\n  remedy: one of job, node, run"),
        ("--var", "team", "--var=team has no value\n  remedy: write it as NAME=VALUE"),
        ("--since", "soon", "--since=soon is not a duration\n  remedy: a number and m, h or d"),
        ("--prometheus", "localhost:9090", "is not an http:// or https:// address"),
        ("--prometheus", "http://127.0.0.1:1", "no Prometheus answers at http://127.0.0.1:1"),
    ):
        is_away = message.startswith("no Prometheus")
        status = ExitStatus.REFUSED if is_away else ExitStatus.WRONG_INPUT
        assert COMMANDS.main(["preview", "--out", str(tmp_path), option, value]) == status
        assert message in capsys.readouterr().err


def test_values_are_shown_with_their_unit() -> None:
    for value, unit, text in (
        (0.925, Unit.RATIO, "92.5 %"),
        (-2048.0, Unit.BYTES_PER_SECOND, "-2.0 KiB/s"),
        (1536.0, Unit.MEBIBYTES, "1.5 GiB"),
        (1495.0, Unit.PER_SECOND, "1.5 k /s"),
        (1300.0, Unit.WATTS, "1.3 kW"),
        (0.0, Unit.HERTZ, "0 Hz"),
        (90.0, Unit.SECONDS, "1 min 30 s"),
        (0.0, Unit.SECONDS, "0 s"),
        (7.0, Unit.COUNT, "7"),
        (math.nan, Unit.COUNT, "no data"),
    ):
        assert shown(value, unit) == text


@given(start=st.floats(-1e3, 1e3), span=st.floats(1e-6, 1e9), unit=st.sampled_from(list(Unit)))
def test_ticks_are_few_distinct_and_inside_the_axis(start: float, span: float, unit: Unit) -> None:
    low = start * span
    marks = ticks(low, low + span, unit)
    assert len(marks) <= 7
    assert marks == sorted(set(marks))
    assert all(low - span * 1e-6 <= mark <= low + span * (1 + 1e-6) for mark in marks)


def test_an_address_with_a_path_is_kept() -> None:
    """Behind an ingress, Prometheus may have a prefix."""
    assert MetricsSource("http://localhost:9090/prometheus/").url == "http://localhost:9090/prometheus"


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
