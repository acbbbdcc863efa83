"""The settings that take an offer: what is printed is what the settings accept."""

from __future__ import annotations

from typing import Any

import pytest

from infra.lifecycle.capacity.change import Change, change_for
from infra.lifecycle.capacity.judging import judge
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import FutureReservation, Offer
from infra.spec.settings import from_mapping
from infra.spec.yaml_text import parse
from tests.infra.lifecycle.capacity.published import Tree
from tests.infra.lifecycle.capacity.samples import (
    BLOCK_ID,
    HOUR,
    NOW,
    RESERVATION_ID,
    block,
    need,
    offering,
    on_demand,
    place,
    reserved,
    sections,
    spot,
)
from tests.infra.spec.samples import changed

GROUP = {"h100": 1, "t4": 0}


def change(offer: Offer, wanted: Need | None = None, changes: Tree | None = None) -> Change:
    """The change that takes an offer in the sample."""
    wanted = wanted or need(changes=changes)
    return change_for(judge(offer, wanted, place(changes)), wanted, sections(changes), file="dev.yaml")


def group(found: Change) -> dict[str, Any]:
    """The group that is printed, read back."""
    assert found.refusal == ""
    (entry,) = parse("\n".join(found.group), source="printed").value
    return dict(entry)


def accepted(found: Change, name: str = "h100", changes: Tree | None = None) -> None:
    """Load the sample with what is printed pasted into it; a purchase has printed its ID."""
    text = "\n".join(found.group).replace("cr-…", BLOCK_ID)
    (entry,) = parse(text, source="printed").value
    tree = changed(sections(changes), {f"gpu_groups.{GROUP[name]}": entry})
    for team, gpus in found.quotas.items():
        (index,) = [number for number, one in enumerate(tree["teams"]) if one["name"] == team]
        tree["teams"][index]["gpus"] = parse(gpus, source="printed").value
    from_mapping(tree, file="pasted")


def test_a_group_that_has_what_it_needs_stays_as_it_is() -> None:
    assert change(on_demand()) == Change(quotas={})


def test_more_nodes_raise_the_size() -> None:
    found = change(on_demand(), need(nodes=5))
    assert group(found) == {**sections()["gpu_groups"][1], "max_size": 5}
    accepted(found)


TOPOLOGY = {
    "gpu_groups.1.min_size": 2,
    "gpu_groups.1.desired_size": 2,
    "gpu_groups.1.topology": "network",
    "gpu_groups.1.availability_zones": ["us-east-1a"],
}


@pytest.mark.parametrize("offer", [on_demand(), reserved(total=3)])
def test_a_group_whose_nodes_kueue_assigns_keeps_a_fixed_size(offer: Offer) -> None:
    found = change(offer, need(nodes=3, changes=TOPOLOGY), TOPOLOGY)
    assert {group(found)[size] for size in ("min_size", "desired_size", "max_size")} == {3}
    accepted(found, changes=TOPOLOGY)


def test_a_zone_that_does_not_offer_the_type_is_replaced_by_one_that_does() -> None:
    found = change(on_demand(zones=("us-east-1c", "us-east-1f")))
    assert group(found)["availability_zones"] == ["us-east-1c"]
    accepted(found)


def test_spot_for_a_group_with_efa_says_that_it_is_meant() -> None:
    found = change(spot())
    assert group(found)["capacity"] == {"kind": "spot", "allow_efa": True}
    accepted(found)


def test_spot_for_a_group_without_efa_uses_all_its_types() -> None:
    plain = {"gpu_groups.0": {"name": "t4", "instance_type": "g6.xlarge", "max_size": 4}}
    wanted = need("t4", changes=plain)
    found = change(spot(instance_types=("g6.xlarge", "g6.2xlarge")), wanted, plain)
    assert group(found)["capacity"] == {"kind": "spot", "instance_types": ["g6.2xlarge"]}
    accepted(found, "t4")
    assert change(spot(), need("t4")).group == ()


def test_a_reservation_is_named_without_a_placement_group_that_it_does_not_have() -> None:
    found = change(reserved(zone="us-east-1b"))
    assert group(found) == {
        "name": "h100",
        "instance_type": "p5.48xlarge",
        "max_size": 2,
        "efa": True,
        "capacity": {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1b"},
    }
    accepted(found)


def test_a_reservation_in_a_placement_group_is_named_with_it() -> None:
    found = change(reserved(placement_group="ours"))
    assert group(found)["placement"] == "cluster"
    assert group(found)["capacity"]["placement_group"] == "ours"
    accepted(found)


def test_a_block_replaces_zones_placement_and_sizes() -> None:
    changes = {"gpu_groups.1.min_size": 2, "gpu_groups.1.desired_size": 2, "gpu_groups.1.topology": "network"}
    found = change(block(), None, changes)
    assert group(found) == {
        "name": "h100",
        "instance_type": "p5.48xlarge",
        "max_size": 2,
        "efa": True,
        "capacity": {
            "kind": "capacity_block",
            "id": BLOCK_ID,
            "availability_zone": "us-east-1a",
            "ends": "2026-11-26T12:00:00Z",
        },
    }
    accepted(found)


@pytest.mark.parametrize(
    "offer",
    [
        offering(),
        FutureReservation(region="us-east-1", zones=("us-east-1a",), starts=NOW + 200 * HOUR, usd_per_hour=1.0),
    ],
)
def test_what_has_no_id_yet_has_a_placeholder_that_the_settings_refuse(offer: Offer) -> None:
    found = change(offer)
    assert group(found)["capacity"]["id"] == "cr-…"
    accepted(found)


def test_the_quotas_of_the_teams_shrink_with_the_group_in_proportion() -> None:
    teams = [
        {"name": "a", "gpus": {"t4": 1, "h100": 12}},
        {"name": "b", "gpus": {"h100": 4}},
        {"name": "c", "gpus": {"t4": 1}},
    ]
    changes = {"teams": teams}
    found = change(offering(instances=1), need(nodes=1, changes=changes), changes)
    assert found.quotas == {"a": "{t4: 1, h100: 6}", "b": "{h100: 2}"}
    tree = sections(changes)
    tree["gpu_groups"][1] = {**group(found), "capacity": {**group(found)["capacity"], "id": BLOCK_ID}}
    for team in tree["teams"][:2]:
        team["gpus"] = parse(found.quotas[team["name"]], source="printed").value
    from_mapping(tree, file="pasted")


def test_a_change_that_the_settings_would_refuse_is_not_printed() -> None:
    found = change(on_demand(), need(nodes=4000))
    assert found.group == ()
    assert "network.cidr" in found.refusal


def test_capacity_that_another_group_uses_is_refused_by_name() -> None:
    used = {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1a"}
    other = {"name": "other", "instance_type": "p5.48xlarge", "max_size": 1, "capacity": used}
    changes = {"gpu_groups": [*sections()["gpu_groups"], other]}
    assert "group h100 already uses this capacity" in change(reserved(), None, changes).refusal
