"""What runs on the cluster, in the picture of an environment."""

from __future__ import annotations

import io
import re
from collections import Counter
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from infra.preview.graph.architecture import Architecture, architecture_of
from infra.preview.graph.cluster_layout import rows_of
from infra.preview.graph.connections import Edge, bundled, ends
from infra.preview.graph.contents import Box, Namespace, Style, contents_of
from infra.preview.graph.picture import draw, figure_of
from infra.preview.graph.sheet import text_width, wrapped
from infra.preview.graph.wiring import wires_of
from infra.preview.recording import Recording, record
from infra.spec.catalog import load_catalog
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from platform_charts.charts.installs import installed_charts
from tests.infra.aws.graphs import ENVIRONMENTS, EXISTING, graph, settings_of, unusual
from tests.platform_charts.objects.sso_samples import with_single_sign_on

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "architecture.svg"
ALL = (*ENVIRONMENTS, *EXISTING, "lustre", "single-sign-on", "unusual")


def settings(name: str) -> StackSettings:
    """Settings of an environment; those of `unusual` are only its colours and its account."""
    if name == "single-sign-on":
        return with_single_sign_on()
    return settings_of("dev" if name == "unusual" else name)


@cache
def recorded(name: str) -> Recording:
    """The graph of one of `ALL`."""
    if name == "single-sign-on":
        return record(with_single_sign_on())
    return unusual() if name == "unusual" else graph(name)


@cache
def architecture(name: str) -> Architecture:
    """What the picture of one of `ALL` shows."""
    return architecture_of(settings(name), recorded(name), load_catalog())


def namespaces(name: str) -> dict[str, Namespace]:
    """The namespaces of one of `ALL`, and under an empty name the objects that are in none."""
    contents = architecture(name).contents
    return {one.name: one for one in (*contents.namespaces, contents.cluster_wide)}


def boxes(name: str, namespace: str) -> dict[str, Box]:
    """The boxes of a namespace by their titles."""
    return {box.title: box for box in namespaces(name)[namespace].boxes}


def uses(name: str) -> set[tuple[str, str]]:
    """Connections between namespaces and what is beside the cluster, in words."""
    facts = architecture(name)
    words = {one.urn: f"{one.service} {one.name}" for one in (*facts.stores, *facts.services)}
    return {(words.get(edge.source, edge.source), words.get(edge.target, edge.target)) for edge in facts.uses}


def reached(name: str, source: str) -> set[str]:
    """The namespaces that a namespace reaches."""
    return {edge.target for edge in architecture(name).paths if edge.source == source}


@cache
def drawn(name: str) -> Figure:
    """The picture of one of `ALL`."""
    figure = figure_of(settings(name), recorded(name))
    figure.savefig(io.BytesIO(), format="png", dpi=figure.dpi)  # sets the places of its texts
    return figure


@cache
def texts(name: str) -> tuple[tuple[str, Bbox], ...]:
    """Every text of the picture with its place, in pixels."""
    found: list[Text] = drawn(name).findobj(Text)
    return tuple((one.get_text(), one.get_window_extent()) for one in found if one.get_text())


@pytest.mark.parametrize("name", ALL)
def test_every_object_of_the_cluster_is_shown_or_counted_once(name: str) -> None:
    contents = architecture(name).contents
    everywhere = (*contents.namespaces, contents.cluster_wide)
    shown = Counter(urn for one in everywhere for urn in (*one.urns, *(urn for box in one.boxes for urn in box.urns)))
    shown.update(contents.urns)
    objects = [one.urn for one in recorded(name).resources if one.type.startswith("kubernetes:")]
    assert shown == Counter(objects)
    for one in everywhere:
        assert sum(one.counts.values()) == sum("v1:Namespace::" not in urn for urn in one.urns)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_namespace_chart_queue_and_team_is_drawn(name: str) -> None:
    shown = {text for text, _ in texts(name)}
    release, found = load_release(), settings(name)
    charts = {f"{chart} {release.charts[chart].version}" for chart in installed_charts(found)}
    made = {one.properties["metadata"]["name"] for one in recorded(name).of_type("kubernetes:core/v1:Namespace")}
    queues = {f"Local queue {team.name}" for team in found.teams}
    assert charts | made | queues | {"kube-system", "Cohort ray-train-platform"} <= shown


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_queue_of_a_team_has_its_gpus(name: str) -> None:
    for team in settings(name).teams:
        facts = boxes(name, team.name)[f"Local queue {team.name}"].facts
        owned, _, borrows = facts.removeprefix(f"Cluster queue {team.name}, GPUs: ").partition("; ")
        assert {words.partition(" ")[2]: int(words.partition(" ")[0]) for words in owned.split(", ")} == team.gpus
        assert borrows == ("may borrow" if team.borrow else "does not borrow")


def test_a_chart_names_its_programs_without_their_helpers() -> None:
    stack = next(box for box in boxes("prod", "monitoring").values() if box.style is Style.CHART)
    programs = {words.partition(" ")[0] for words in stack.facts.removeprefix("Helm chart, ").split(", ")}
    assert programs == {
        *("alertmanager", "grafana", "kube-state-metrics", "node-exporter", "prometheus", "prometheus-operator")
    }
    assert "dcgm-exporter" in next(
        facts.facts for title, facts in boxes("prod", "gpu-system").items() if "dcgm" in title
    )


def test_mlflow_is_shown_with_its_pods_and_schedules() -> None:
    found = boxes("prod", "mlflow")
    assert found["mlflow"].facts == "Deployment, 2 pods"
    assert found["mlflow-backup"].facts == "CronJob, 17 2 * * *"
    assert boxes("dev", "mlflow")["mlflow"].facts == "Deployment, 1 pod"


def test_alert_rules_dashboards_and_policies_are_counted() -> None:
    monitoring = boxes("prod", "monitoring")
    [rules] = recorded("prod").of_type("kubernetes:monitoring.coreos.com/v1:PrometheusRule")
    alerts = [rule for group in rules.properties["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert monitoring["Alert rules"].facts.startswith(f"{len(alerts)} in ")
    dashboards = [one for one in recorded("prod").resources if one.name.startswith("configmap-monitoring-dashboard-")]
    assert monitoring["Dashboards"].facts == f"{len(dashboards)} in Grafana"
    policies = [one for one in recorded("prod").resources if one.name.startswith("networkpolicy-research-")]
    assert namespaces("prod")["research"].counts["NetworkPolicy"] == len(policies) > 5


def test_the_cohort_says_which_gpus_no_team_owns() -> None:
    [(_, facts)] = architecture("unusual").contents.cohorts
    assert "GPUs of no team: " in facts
    assert [facts for _, facts in architecture("prod").contents.cohorts] == ["its queues lend each other idle GPUs"]


def test_mlflow_uses_its_database_and_bucket_and_teams_their_volumes_and_bucket() -> None:
    assert uses("prod") == {
        ("mlflow", "RDS mlflow"),
        ("mlflow", "S3 artifacts"),
        ("production", "EFS datasets"),
        ("production", "S3 checkpoints"),
        ("research", "EFS datasets"),
        ("research", "S3 checkpoints"),
        ("data-sync", "EFS datasets"),
        ("gpu-system", "Logs container-logs"),
        ("monitoring", "SNS alerts"),
    }


def test_teams_use_the_lustre_file_system() -> None:
    service = next(one for one in architecture("lustre").stores if one.service == "FSx")
    assert ("research", f"FSx {service.name}") in uses("lustre")


def test_prometheus_reaches_what_it_scrapes_and_jobs_reach_mlflow() -> None:
    assert reached("prod", "monitoring") == {
        *("gpu-system", "kube-system", "kuberay-system", "kueue-system", "production", "research")
    }
    assert architecture("prod").callers == {"monitoring": "prometheus"}
    assert reached("prod", "research") == {"mlflow"}
    assert reached("prod", "kuberay-system") == {"production", "research"}
    assert reached("prod", "mlflow") == set()


def test_a_load_balancer_leads_to_the_proxy_of_single_sign_on_and_the_proxy_to_the_uis() -> None:
    assert ("ALB rtp-dev-sso", "sso") in uses("single-sign-on")
    assert reached("single-sign-on", "sso") == {"mlflow", "monitoring"}
    assert "sso" not in namespaces("dev")


@pytest.mark.parametrize("name", ALL)
def test_every_connection_ends_at_something_that_is_drawn(name: str) -> None:
    facts = architecture(name)
    beside = {one.urn for one in (*facts.stores, *facts.services)}
    rows = {one.name for one in facts.contents.namespaces}
    assert ends(facts.paths) <= rows
    assert ends(facts.uses) <= rows | beside
    assert {one.urn for one in facts.services} <= ends(facts.uses), "a service that nothing uses"


@pytest.mark.parametrize("name", ALL)
def test_the_other_end_of_a_path_lets_it_in(name: str) -> None:
    policies = recorded(name).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    admitted = {
        Edge(
            peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
            one.properties["metadata"]["namespace"],
        )
        for one in policies
        for rule in one.properties["spec"].get("ingress") or ()
        for peer in rule.get("from") or ()
        if "namespaceSelector" in peer
    }
    # The stack has no policies in kube-system, which is not its own.
    assert {edge for edge in architecture(name).paths if edge.target != "kube-system"} == {
        edge for edge in admitted if edge.source != edge.target
    }


def test_a_namespace_that_only_a_connection_names_has_a_row() -> None:
    contents = contents_of(recorded("dev"), named=["elsewhere"])
    [found] = [one for one in contents.namespaces if one.name == "elsewhere"]
    assert (found.boxes, found.counts, found.urns) == ((), {}, ())


@pytest.mark.parametrize("name", ALL)
def test_no_text_covers_another_or_leaves_the_picture(name: str) -> None:
    found = texts(name)
    width, height = drawn(name).get_size_inches() * drawn(name).dpi
    for text, place in found:
        assert 0 <= place.x0 <= place.x1 <= width, text
        assert 0 <= place.y0 <= place.y1 <= height, text
    covered = [(one, other) for (one, a), (other, b) in combinations(found, 2) if _overlap(a, b)]
    assert covered == []


@pytest.mark.parametrize("name", ALL)
def test_text_stays_in_its_box(name: str) -> None:
    frames = [one.get_window_extent() for one in drawn(name).findobj(FancyBboxPatch)]
    outside = []
    for text, place in texts(name):
        middle = ((place.x0 + place.x1) / 2, (place.y0 + place.y1) / 2)
        around = [frame for frame in frames if frame.contains(*middle)]
        inmost = min(around, key=lambda frame: frame.width * frame.height, default=None)
        if inmost is not None and not (inmost.x0 <= place.x0 and place.x1 <= inmost.x1):
            outside.append(text)
    assert outside == []


def _overlap(one: Bbox, other: Bbox) -> bool:
    """Whether the places share more than the pixel by which the extents of text are too large."""
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    up = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(across > 1 and up > 1)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60.0, 88.5, 200.0])
def test_boxes_are_inside_their_row_and_beside_each_other(name: str, width: float) -> None:
    rows, frame, height = rows_of(architecture(name).contents, width)
    assert all(upper.top + upper.height < lower.top for upper, lower in pairwise(rows))
    assert rows[-1].top + rows[-1].height == pytest.approx(height)
    for row in rows:
        places = [Bbox.from_bounds(one.x, one.y, one.width, one.height) for one in row.boxes]
        assert all(place.x1 <= width and place.y1 <= row.counts_y <= row.height for place in places)
        assert not any(Bbox.intersection(one, other) for one, other in combinations(places, 2))
        if row.namespace.is_team:
            assert frame is not None
            assert frame.top < row.top
            assert row.top + row.height < frame.top + frame.height


def test_the_picture_of_the_documents_is_the_current_one(tmp_path: Path) -> None:
    file = tmp_path / "architecture.svg"
    draw(settings("prod"), recorded("prod"), file)
    assert _words(PICTURE) == _words(file), "run make graph ENV=prod FILE=docs/images/architecture.svg"


def _words(file: Path) -> list[str]:
    """The texts of an SVG, which draws them as outlines and repeats them in comments."""
    found = re.findall(r"<!-- (.*) -->", file.read_text(encoding="utf-8"))
    assert len(found) > 100
    return found


@given(st.text(alphabet="abc ", max_size=80), st.floats(min_value=1, max_value=60))
def test_wrapped_text_keeps_its_words_and_fits(text: str, width: float) -> None:
    lines = wrapped(text, width, size=7)
    assert " ".join(lines).split() == text.split()
    assert all(text_width(line, size=7) <= width or " " not in line for line in lines)


_NAMES = st.sampled_from("abcdefg")
_EDGES = st.frozensets(st.builds(Edge, _NAMES, _NAMES).filter(lambda edge: edge.source != edge.target), min_size=1)


@given(_EDGES)
def test_bundles_have_every_edge_once(edges: frozenset[Edge]) -> None:
    found = [Edge(source, target) for one in bundled(edges) for source in one.sources for target in one.targets]
    assert sorted(found) == sorted(edges)


@given(_EDGES)
def test_lines_of_a_channel_do_not_lie_on_each_other(edges: frozenset[Edge]) -> None:
    spans = {name: (10.0 * index, 10.0 * index + 8) for index, name in enumerate("abcdefg")}
    wires = wires_of(bundled(edges), spans)
    for wire in wires:
        for end, y in zip((*wire.bundle.sources, *wire.bundle.targets), (*wire.sources, *wire.targets), strict=True):
            assert spans[end][0] < y < spans[end][1]
    for one, other in combinations(wires, 2):
        assert not {*one.sources, *one.targets} & {*other.sources, *other.targets}, "two branches at one place"
        if one.track == other.track:
            (low, high), (least, most) = (_reach(wire.sources + wire.targets) for wire in (one, other))
            assert high < least or most < low


def test_branches_from_both_sides_of_a_channel_stay_apart() -> None:
    spans = {"row": (0.0, 6.0), "store": (1.6, 4.4), "other row": (10.0, 16.0), "other store": (11.6, 14.4)}
    wires = wires_of(bundled({Edge("row", "other store"), Edge("store", "other row")}), spans)
    branches = sorted(y for wire in wires for y in (*wire.sources, *wire.targets))
    assert all(lower + 0.6 < upper for lower, upper in pairwise(branches))


def _reach(branches: tuple[float, ...]) -> tuple[float, float]:
    return min(branches), max(branches)
