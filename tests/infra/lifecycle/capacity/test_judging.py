"""What an offer means for a need, and which one is better."""

from __future__ import annotations

from datetime import timedelta

from infra.lifecycle.capacity.judging import Certainty, judge
from infra.lifecycle.capacity.offers import NotKnown, Offer
from infra.lifecycle.capacity.ranking import ranked
from tests.infra.lifecycle.capacity.samples import (
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


def test_spot_is_as_certain_as_its_placement_score() -> None:
    certain = {score: judge(spot(score=score), need(), place()).certainty for score in (10, 7, 6, 4, 3, DENIED)}
    likely, possible, unlikely = Certainty.LIKELY, Certainty.POSSIBLE, Certainty.UNLIKELY
    assert certain == {10: likely, 7: likely, 6: possible, 4: possible, 3: unlikely, DENIED: possible}


def test_spot_is_compared_with_on_demand_and_warns_of_its_end() -> None:
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
