"""What is looked for, what an offer means for it, which one is better, and the settings that take it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.lifecycle.capacity.block_rules import BLOCK_HOURS, durations_for, future_start, why_no_block
from infra.lifecycle.capacity.change import Change, change_for
from infra.lifecycle.capacity.judging import Certainty, judge
from infra.lifecycle.capacity.need import Need, parse_start
from infra.lifecycle.capacity.offers import FutureReservation, NotKnown, Offer
from infra.lifecycle.capacity.ranking import ranked
from infra.spec.capacity import BLOCK_RECLAIM
from infra.spec.errors import SettingsError
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
    quota,
    reserved,
    sections,
    spot,
)

DENIED = NotKnown("access denied, needs ec2:X")


def shortfalls(offer: Offer, **wanted: float) -> tuple[str, ...]:
    """What a need of the sample lacks with an offer."""
    return judge(offer, need(**wanted), place()).shortfalls  # type: ignore[arg-type]


def test_on_demand_costs_the_list_price_and_needs_quota() -> None:
    found = judge(on_demand(), need(), place())
    assert found.cost == (2 * 24 * 100.0, 100.0 / 8)
    assert (found.certainty, found.shortfalls) == (Certainty.POSSIBLE, ())
    assert found.notes == ("AWS promises nothing: a launch succeeds or fails",)
    (said,) = shortfalls(on_demand(quota=quota(left=200)))
    assert said.startswith("quota L-417A185B leaves 200 of 392 vCPUs, 2 nodes need 384: request 576 or more")
    assert shortfalls(on_demand(quota=quota(left=384))) == ()


def test_what_is_not_known_is_said_and_no_shortfall() -> None:
    for offer in (on_demand(quota=DENIED), spot(quota=DENIED)):
        found = judge(offer, need(), place())
        assert "quota not known: access denied, needs ec2:X" in found.notes
        assert found.shortfalls == ()
    assert judge(on_demand(usd_per_hour=None), need(), place()).cost == (None, None)
    found = judge(spot(price=DENIED), need(), place())
    assert found.cost == (None, None)
    assert "price not known: access denied, needs ec2:X" in found.notes


def test_spot_is_as_certain_as_its_score_compared_with_on_demand_and_warns_of_its_end() -> None:
    certain = {score: judge(spot(score=score), need(), place()).certainty for score in (10, 7, 6, 4, 3, DENIED)}
    likely, possible, unlikely = Certainty.LIKELY, Certainty.POSSIBLE, Certainty.UNLIKELY
    assert certain == {10: likely, 7: likely, 6: possible, 4: possible, 3: unlikely, DENIED: possible}
    notes = judge(spot(), need(), place()).notes
    assert "60% below on demand" in notes
    assert "$30.00 to $60.00 per node hour in the last week" in notes
    assert "EC2 gives low scores to fewer than 3 types" in notes
    assert "AWS may take the nodes back with two minutes' notice, and one that goes stops every rank" in notes
    dear = judge(spot(price=spot().price, on_demand_usd_per_hour=30.0), need(nodes=1), place()).notes
    assert not any("below" in note or "every rank" in note for note in dear)


def test_a_reservation_of_the_account_costs_nothing_more_and_one_of_another_account_does() -> None:
    ours = judge(reserved(), need(), place())
    assert (ours.certainty, ours.cost, ours.shortfalls) == (Certainty.HELD, (0.0, 0.0), ())
    shared = judge(reserved(owner="111122223333"), need(), place())
    assert shared.cost.usd == 2 * 24 * 100.0
    assert "shared by account 111122223333; its instances are billed to this one" in shared.notes


def test_what_a_reservation_lacks_and_who_else_uses_it_is_said_in_full() -> None:
    misfit = "it is of dedicated tenancy, nodes are not"
    assert shortfalls(reserved(available=1, ends=NOW + 6 * HOUR, zone="us-east-1d", misfit=misfit)) == (
        "us-east-1d: no zone of the network, which has us-east-1a, us-east-1b, us-east-1c",
        misfit,
        "1 of its 4 instances are free, not 2",
        "has nodes for 6.0 h, until 2026-11-23 18:00 UTC, not 24 h",
    )
    capacity = {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1a"}
    changes = {"gpu_groups.1.capacity": capacity, "gpu_groups.1.placement": "none"}
    notes = judge(reserved(is_open=True), need(changes=changes), place(changes)).notes
    assert "group h100 uses it" in notes
    assert "open: any matching launch of the account takes it too" in notes


def test_a_block_that_is_to_come_has_all_its_nodes_until_forty_minutes_before_its_end() -> None:
    found = judge(block(), need(hours=47), place())
    assert (found.starts, found.ends) == (NOW + 24 * HOUR, NOW + 72 * HOUR - timedelta(minutes=40))
    assert found.shortfalls == ()
    (short,) = shortfalls(block(), hours=48)
    assert "has nodes for 47.3 h" in short
    assert judge(reserved(state="payment-pending"), need(), place()).certainty is Certainty.HELD
    assert judge(reserved(state="delayed"), need(), place()).certainty is Certainty.UNLIKELY


def test_a_block_for_sale_costs_its_fee_for_all_its_hours() -> None:
    found = judge(offering(), need(), place())
    assert found.cost == (3072.0, 3072.0 / (2 * 8 * 48))
    assert (found.certainty, found.shortfalls) == (Certainty.SOLD, ())
    foreign = judge(offering(currency="EUR"), need(), place())
    assert foreign.cost == (None, None)
    assert "3,072.00 EUR" in foreign.notes


def test_an_offer_elsewhere_needs_another_environment_and_one_of_today_says_nothing_about_later() -> None:
    far = on_demand(region="us-east-2", zones=("us-east-2a",))
    assert shortfalls(far) == ("needs an environment in us-east-2: this one is in us-east-1",)
    later = need(starts=NOW + 48 * HOUR)
    for offer in (on_demand(), spot()):
        assert "as of today: AWS says nothing about 2026-11-25" in judge(offer, later, place()).notes
    assert not any("today" in note for note in judge(offering(), later, place()).notes)


BEST_FIRST: tuple[Offer, ...] = (
    reserved(),
    offering(fee=2000.0),
    offering(id="cbr-later", starts=NOW + 48 * HOUR, ends=NOW + 96 * HOUR, fee=2500.0),
    spot(score=9),
    on_demand(usd_per_hour=30.0),
    spot(score=5),
    on_demand(usd_per_hour=None),
    spot(score=1),
    reserved(available=0),
    on_demand(quota=quota(left=0)),
)


def test_enough_comes_before_too_little_then_the_certain_then_the_cheap_then_the_early() -> None:
    judged = [judge(one, need(), place()) for one in BEST_FIRST]
    for order in (judged[::-1], judged[1::2] + judged[::2], judged[5:] + judged[:5]):
        assert [one.offer for one in ranked(order)] == [one.offer for one in judged]


H100 = {"name": "h100", "instance_type": "p5.48xlarge", "max_size": 2, "efa": True}
"""The group of the sample, without zones and placement."""


def change(offer: Offer, wanted: Need | None = None, changes: Tree | None = None) -> Change:
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


def test_on_demand_changes_size_and_zone_only_where_needed_and_keeps_a_fixed_size() -> None:
    assert change(on_demand()) == Change(quotas={})
    assert group(change(on_demand(), need(nodes=5))) == {**sections()["gpu_groups"][1], "max_size": 5}
    elsewhere = change(on_demand(zones=("us-east-1c", "us-east-1f")))
    assert group(elsewhere)["availability_zones"] == ["us-east-1c"]
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


def test_a_reservation_has_its_placement_group_and_a_block_replaces_zones_placement_and_sizes() -> None:
    capacity = {"kind": "reservation", "id": RESERVATION_ID, "availability_zone": "us-east-1b"}
    assert group(change(reserved(zone="us-east-1b"))) == {**H100, "capacity": capacity}
    found = group(change(reserved(placement_group="ours")))
    assert (found["placement"], found["capacity"]["placement_group"]) == ("cluster", "ours")
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


DAY = timedelta(days=1)


def test_a_group_is_named_unless_there_is_only_one() -> None:
    alone = {"gpu_groups": [{"name": "l4", "instance_type": "g6.12xlarge", "max_size": 1}], "teams": []}
    assert need(None, changes=alone).instance.name == "g6.12xlarge"
    with pytest.raises(SettingsError, match="has several GPU groups") as several:
        need(None)
    assert several.value.remedy == "name one with GROUP=…: h100, t4"
    with pytest.raises(SettingsError, match="no such GPU group") as unknown:
        need("h10")
    assert unknown.value.remedy == "did you mean h100?"
    with pytest.raises(SettingsError, match="has no GPU group"):
        need(changes={"gpu_groups": [], "teams": []})


def test_the_start_is_now_a_day_in_utc_or_a_time_with_its_zone_and_others_are_refused() -> None:
    starts = {
        None: NOW,
        "2026-12-01": datetime(2026, 12, 1, tzinfo=UTC),
        "2026-12-01T09:00+01:00": datetime(2026, 12, 1, 8, tzinfo=UTC),
        "2026-12-01T09:00Z": datetime(2026, 12, 1, 9, tzinfo=UTC),
        "2026-11-23": NOW,
    }
    assert {text: parse_start(text, now=NOW) for text in starts} == starts
    refusals = {
        "has no time zone": ["2026-12-01T09:00"],
        "has passed; it is 2026-11-23 12:00 UTC": ["2026-11-22", "2026-11-23T11:59Z", "2026-11-23T12:30+01:00"],
        "neither a day nor a time": ["0001-01-01T00:00+14:00", "1.12.2026", "2026-02-30"],
    }
    for said, texts in refusals.items():
        for text in texts:
            with pytest.raises(SettingsError, match=said) as refused:
                parse_start(text, now=NOW)
            assert refused.value.remedy, text


@given(st.floats(min_value=0.5, max_value=BLOCK_HOURS[-1], allow_nan=False))
def test_a_block_is_asked_for_with_durations_that_ec2_takes_and_one_has_nodes_long_enough(hours: float) -> None:
    found = durations_for(hours)
    assert set(found) <= set(BLOCK_HOURS)
    assert min(found) >= hours
    longest = timedelta(hours=max(found)) - BLOCK_RECLAIM
    assert longest >= timedelta(hours=hours) or max(found) == BLOCK_HOURS[-1]


def test_why_ec2_sells_no_block_for_a_need_and_how_long_blocks_last() -> None:
    assert why_no_block(need(), now=NOW) == ""
    assert "not sold for g4dn" in why_no_block(need("t4"), now=NOW)
    assert "at most 64 instances, not 65" in why_no_block(need(nodes=65), now=NOW)
    assert "at most 4,368 hours (182 days), not 5,000" in why_no_block(need(hours=5000), now=NOW)
    assert why_no_block(need(starts=NOW + 56 * DAY), now=NOW) == ""
    late = why_no_block(need(starts=NOW + 57 * DAY), now=NOW)
    assert late == "EC2 sells blocks that begin within 8 weeks, by 2027-01-18 12:00 UTC"
    durations = {23: (24,), 24: (24, 48), 330: (336,), 340: (504,), 5000: ()}
    assert {hours: durations_for(hours) for hours in durations} == durations


def test_g_types_may_be_reserved_from_the_fifth_day_on_and_p_types_not() -> None:
    assert future_start(need("t4", nodes=8), now=NOW) == NOW + 5 * DAY + timedelta(hours=1)
    later = NOW + 30 * DAY
    assert future_start(need("t4", nodes=8, starts=later), now=NOW) == later
    assert "not for p5" in str(future_start(need(), now=NOW))
    assert "at least 32 vCPUs, not 28" in str(future_start(need("t4", nodes=7), now=NOW))
    assert "at most 120 days" in str(future_start(need("t4", nodes=8, starts=NOW + 121 * DAY), now=NOW))
