"""What runs on the cluster, in the picture of an environment."""

from __future__ import annotations

import io
import re
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from infra.preview.graph.architecture import Architecture, architecture_of
from infra.preview.graph.connections import Edge, bundled, ends
from infra.preview.graph.picture import draw, figure_of
from infra.preview.graph.sheet import text_width, wrapped
from infra.preview.graph.wiring import wires_of
from infra.preview.recording import Recording, record
from infra.spec.catalog import load_catalog
from infra.spec.settings import StackSettings
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
    if name == "single-sign-on":
        return record(with_single_sign_on())
    return unusual() if name == "unusual" else graph(name)


@cache
def architecture(name: str) -> Architecture:
    return architecture_of(settings(name), recorded(name), load_catalog())


def uses(name: str) -> set[tuple[str, str]]:
    """Connections between namespaces and what is beside the cluster, in words."""
    facts = architecture(name)
    words = {one.urn: f"{one.service} {one.name}" for one in (*facts.stores, *facts.services)}
    return {(words.get(edge.source, edge.source), words.get(edge.target, edge.target)) for edge in facts.uses}


@cache
def drawn(name: str) -> Figure:
    figure = figure_of(settings(name), recorded(name))
    figure.savefig(io.BytesIO(), format="png", dpi=figure.dpi)  # sets the places of its texts
    return figure


@cache
def texts(name: str) -> tuple[tuple[str, Bbox], ...]:
    """Every text of the picture with its place, in pixels."""
    found: list[Text] = drawn(name).findobj(Text)
    return tuple((one.get_text(), one.get_window_extent()) for one in found if one.get_text())


@pytest.mark.extended
def test_every_object_of_the_cluster_is_shown_or_counted_once() -> None:
    for name in ALL:
        contents = architecture(name).contents
        everywhere = (*contents.namespaces, contents.cluster_wide)
        shown = Counter(urn for one in everywhere for box in one.boxes for urn in box.urns)
        shown.update(urn for one in everywhere for urn in one.urns)
        shown.update(contents.urns)
        objects = [one.urn for one in recorded(name).resources if one.type.startswith("kubernetes:")]
        assert shown == Counter(objects), name
        for one in everywhere:
            assert sum(one.counts.values()) == sum("v1:Namespace::" not in urn for urn in one.urns), name


def test_the_cohort_says_which_gpus_no_team_owns() -> None:
    [(_, facts)] = architecture("unusual").contents.cohorts
    assert "GPUs of no team: " in facts
    assert [facts for _, facts in architecture("prod").contents.cohorts] == ["its queues lend each other idle GPUs"]


def test_mlflow_and_teams_use_their_stores() -> None:
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
    assert architecture("prod").callers == {"monitoring": "prometheus"}
    service = next(one for one in architecture("lustre").stores if one.service == "FSx")
    assert ("research", f"FSx {service.name}") in uses("lustre")


def test_a_load_balancer_leads_to_the_proxy_of_single_sign_on_and_the_proxy_to_the_uis() -> None:
    assert ("ALB rtp-dev-sso", "sso") in uses("single-sign-on")
    paths = architecture("single-sign-on").paths
    assert {edge.target for edge in paths if edge.source == "sso"} == {"mlflow", "monitoring"}
    assert "sso" not in {one.name for one in architecture("dev").contents.namespaces}


def test_every_connection_ends_at_something_that_is_drawn_and_lets_it_in() -> None:
    for name in ALL:
        facts = architecture(name)
        beside = {one.urn for one in (*facts.stores, *facts.services)}
        rows = {one.name for one in facts.contents.namespaces}
        assert ends(facts.paths) <= rows, name
        assert ends(facts.uses) <= rows | beside, name
        assert {one.urn for one in facts.services} <= ends(facts.uses), f"{name}: a service that nothing uses"
        # The stack has no policies in kube-system, which is not its own.
        assert {edge for edge in facts.paths if edge.target != "kube-system"} == admitted(name), name


def admitted(name: str) -> set[Edge]:
    """The namespaces that the network policies of others let in."""
    policies = recorded(name).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    name_label = "kubernetes.io/metadata.name"
    edges = (
        Edge(peer["namespaceSelector"]["matchLabels"][name_label], one.properties["metadata"]["namespace"])
        for one in policies
        for rule in one.properties["spec"].get("ingress") or ()
        for peer in rule.get("from") or ()
        if "namespaceSelector" in peer
    )
    return {edge for edge in edges if edge.source != edge.target}


@pytest.mark.extended
@pytest.mark.parametrize("name", ["existing-cluster", "prod", "single-sign-on", "unusual"])
def test_text_stays_in_the_picture_and_in_its_box_and_covers_no_other(name: str) -> None:
    found = texts(name)
    width, height = drawn(name).get_size_inches() * drawn(name).dpi
    frames = [one.get_window_extent() for one in drawn(name).findobj(FancyBboxPatch)]
    for text, place in found:
        assert 0 <= place.x0 <= place.x1 <= width, text
        assert 0 <= place.y0 <= place.y1 <= height, text
        middle = ((place.x0 + place.x1) / 2, (place.y0 + place.y1) / 2)
        around = [frame for frame in frames if frame.contains(*middle)]
        inmost = min(around, key=lambda frame: frame.width * frame.height, default=None)
        assert inmost is None or (inmost.x0 <= place.x0 and place.x1 <= inmost.x1), text
    covered = [(one, other) for (one, a), (other, b) in combinations(found, 2) if _overlap(a, b)]
    assert covered == []


def _overlap(one: Bbox, other: Bbox) -> bool:
    """Whether the places share more than the pixel by which the extents of text are too large."""
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    up = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(across > 1 and up > 1)


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
            branches, others = one.sources + one.targets, other.sources + other.targets
            assert max(branches) < min(others) or max(others) < min(branches)
