"""The printed changes in the program: the graph of `prod` with each one differs in the group alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from infra.lifecycle.capacity.change import change_for
from infra.lifecycle.capacity.finder import place_of
from infra.lifecycle.capacity.judging import judge
from infra.lifecycle.capacity.need import make_need
from infra.lifecycle.capacity.offers import Offer
from infra.preview.recording import Recording, record
from infra.spec.catalog import load_catalog
from infra.spec.settings import from_mapping
from infra.spec.settings.loading import ENVIRONMENTS
from infra.spec.yaml_text import parse, read_file
from tests.infra.lifecycle.capacity.published import Tree
from tests.infra.lifecycle.capacity.samples import (
    BLOCK_ID,
    NOW,
    RESERVATION_ID,
    block,
    offering,
    on_demand,
    reserved,
    spot,
)

_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def document() -> Tree:
    """The file of the shipped environment `prod`."""
    return dict(read_file(ENVIRONMENTS / "prod.yaml").value)


@cache
def before() -> Recording:
    """The graph of `prod`."""
    return record(from_mapping(document(), file="prod"))


def after(offer: Offer) -> Recording:
    """The graph of `prod` with the group and the quotas that are printed for an offer of 9 nodes."""
    tree = document()
    settings = from_mapping(tree, file="prod")
    need = make_need(settings, load_catalog(), group="h100", nodes=9, hours=24, starts=NOW)
    found = change_for(judge(offer, need, place_of(settings, now=NOW)), need, tree, file="prod.yaml")
    assert found.refusal == ""
    (entry,) = parse("\n".join(found.group).replace("cr-…", BLOCK_ID), source="printed").value
    pasted = [entry if one["name"] == "h100" else one for one in tree["gpu_groups"]]
    teams = [
        {**team, "gpus": parse(found.quotas[team["name"]], source="printed").value if found.quotas else team["gpus"]}
        for team in tree["teams"]
    ]
    return record(from_mapping({**tree, "gpu_groups": pasted, "teams": teams}, file="pasted"))


def nodes(graph: Recording) -> Tree:
    """The capacity, size and zones of each node group of h100, and the launch template's reservation."""
    groups = [one for one in graph.of_type(_NODE_GROUP) if "h100" in one.name]
    (template,) = [one for one in graph.of_type(_TEMPLATE) if "h100" in one.name]
    target = (template.properties.get("capacityReservationSpecification") or {}).get("capacityReservationTarget") or {}
    return {
        "types": {str(one.properties["capacityType"]) for one in groups},
        "size": sum(one.properties["scalingConfig"]["maxSize"] for one in groups),
        "reservation": target.get("capacityReservationId"),
    }


NINE: dict[str, Any] = {"total": 9, "available": 9}


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (on_demand(), {"types": {"ON_DEMAND"}, "size": 9, "reservation": None}),
        (spot(), {"types": {"SPOT"}, "size": 9, "reservation": None}),
        (reserved(**NINE, placement_group="ours"), {"types": {"ON_DEMAND"}, "size": 9, "reservation": RESERVATION_ID}),
        (block(**NINE), {"types": {"CAPACITY_BLOCK"}, "size": 9, "reservation": BLOCK_ID}),
        (offering(instances=4), {"types": {"CAPACITY_BLOCK"}, "size": 4, "reservation": BLOCK_ID}),
    ],
    ids=lambda one: getattr(one, "kind", None),
)
def test_the_graph_has_the_nodes_of_the_offer_and_nothing_else_is_created_or_deleted(
    offer: Offer, expected: Tree
) -> None:
    graph = after(offer)
    assert nodes(graph) == expected
    others = [{one.urn for one in found.resources if "h100" not in one.urn} for found in (before(), graph)]
    assert others[0] == others[1]
