"""The settings that take an offer: what is printed is what the settings accept."""

from __future__ import annotations

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

H100 = {"name": "h100", "instance_type": "p5.48xlarge", "max_size": 2, "efa": True}
"""The group of the sample, without zones and placement."""


def change(offer: Offer, wanted: Need | None = None, changes: Tree | None = None) -> Change:
    """The change that takes an offer in the sample."""
    wanted = wanted or need(changes=changes)
    return change_for(judge(offer, wanted, place(changes)), wanted, sections(changes), file="dev.yaml")


def group(found: Change, changes: Tree | None = None) -> Tree:
    """The group that is printed, read back; the sample with it and the quotas loads, once a purchase has printed its ID."""
    assert found.refusal == ""
    (entry,) = parse("\n".join(found.group), source="printed").value
    (pasted,) = parse("\n".join(found.group).replace("cr-…", BLOCK_ID), source="printed").value
    tree = sections(changes)
    tree["gpu_groups"] = [pasted if one["name"] == pasted["name"] else one for one in tree["gpu_groups"]]
    for team in tree["teams"]:
        if team["name"] in found.quotas:
            team["gpus"] = parse(found.quotas[team["name"]], source="printed").value
    from_mapping(tree, file="pasted")
    return dict(entry)


def test_on_demand_changes_size_and_zone_only_where_they_do_not_suffice() -> None:
    assert change(on_demand()) == Change(quotas={})
    assert group(change(on_demand(), need(nodes=5))) == {**sections()["gpu_groups"][1], "max_size": 5}
    elsewhere = change(on_demand(zones=("us-east-1c", "us-east-1f")))
    assert group(elsewhere)["availability_zones"] == ["us-east-1c"]


def test_a_group_whose_nodes_kueue_assigns_keeps_a_fixed_size() -> None:
    fixed = {
        "gpu_groups.1.min_size": 2,
        "gpu_groups.1.desired_size": 2,
        "gpu_groups.1.topology": "network",
        "gpu_groups.1.availability_zones": ["us-east-1a"],
    }
    for offer in (on_demand(), reserved(total=3)):
        found = group(change(offer, need(nodes=3, changes=fixed), fixed), fixed)
        assert {found[size] for size in ("min_size", "desired_size", "max_size")} == {3}, offer


def test_spot_says_that_efa_is_meant_and_uses_all_types_of_a_group_without_it() -> None:
    assert group(change(spot()))["capacity"] == {"kind": "spot", "allow_efa": True}
    plain = {"gpu_groups.0": {"name": "t4", "instance_type": "g6.xlarge", "max_size": 4}}
    found = change(spot(instance_types=("g6.xlarge", "g6.2xlarge")), need("t4", changes=plain), plain)
    assert group(found, plain)["capacity"] == {"kind": "spot", "instance_types": ["g6.2xlarge"]}
    assert change(spot(), need("t4")).group == ()


def test_a_reservation_is_named_with_the_placement_group_that_it_has() -> None:
    capacity = {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1b"}
    assert group(change(reserved(zone="us-east-1b"))) == {**H100, "capacity": capacity}
    found = group(change(reserved(placement_group="ours")))
    assert (found["placement"], found["capacity"]["placement_group"]) == ("cluster", "ours")


def test_a_block_replaces_zones_placement_and_sizes() -> None:
    changes = {"gpu_groups.1.min_size": 2, "gpu_groups.1.desired_size": 2, "gpu_groups.1.topology": "network"}
    capacity = {"kind": "capacity_block", "id": BLOCK_ID, "availability_zone": "us-east-1a"}
    assert group(change(block(), None, changes), changes) == {
        **H100,
        "capacity": {**capacity, "ends": "2026-11-26T12:00:00Z"},
    }


def test_what_has_no_id_yet_has_a_placeholder_that_the_settings_refuse() -> None:
    future = FutureReservation(region="us-east-1", zones=("us-east-1a",), starts=NOW + 200 * HOUR, usd_per_hour=1.0)
    for offer in (offering(), future):
        assert group(change(offer))["capacity"]["id"] == "cr-…", offer


def test_the_quotas_of_the_teams_shrink_with_the_group_in_proportion() -> None:
    teams = [
        {"name": "a", "gpus": {"t4": 1, "h100": 12}},
        {"name": "b", "gpus": {"h100": 4}},
        {"name": "c", "gpus": {"t4": 1}},
    ]
    found = change(offering(instances=1), need(nodes=1, changes={"teams": teams}), {"teams": teams})
    assert found.quotas == {"a": "{t4: 1, h100: 6}", "b": "{h100: 2}"}
    assert group(found, {"teams": teams})["max_size"] == 1


def test_a_change_that_the_settings_would_refuse_is_not_printed() -> None:
    found = change(on_demand(), need(nodes=4000))
    assert found.group == ()
    assert "network.cidr" in found.refusal
    used = {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1a"}
    other = {"name": "other", "instance_type": "p5.48xlarge", "max_size": 1, "capacity": used}
    changes = {"gpu_groups": [*sections()["gpu_groups"], other]}
    assert "group h100 already uses this capacity" in change(reserved(), None, changes).refusal
