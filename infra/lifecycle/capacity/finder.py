"""Every way to get the nodes of a need, from every source, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.capacity.block_rules import future_start
from infra.lifecycle.capacity.judging import Judged, Place, judge
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import Absent, FutureReservation, NotKnown, Offer, Reserved
from infra.lifecycle.capacity.ranking import ranked
from infra.lifecycle.capacity.sources.blocks import block_offerings
from infra.lifecycle.capacity.sources.on_demand import list_price, on_demand, zones_that_offer
from infra.lifecycle.capacity.sources.reservations import reservations
from infra.lifecycle.capacity.sources.spot import spot
from infra.lifecycle.capacity.spot_types import spot_types
from infra.spec.capacity import CapacityBlock, Reservation
from infra.spec.catalog import Catalog
from infra.spec.settings.stack import StackSettings


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found.

    Attributes:
        need: what was looked for.
        offers: the offers, best first.
        absent: kinds of capacity without an offer, each with the reason.
    """

    need: Need
    offers: tuple[Judged, ...]
    absent: tuple[Absent, ...]


def place_of(settings: StackSettings, *, now: datetime) -> Place:
    """What offers are judged by, of an environment."""
    reserved = {
        group.capacity.id: group.name
        for group in settings.gpu_groups
        if isinstance(group.capacity, (Reservation, CapacityBlock))
    }
    return Place(region=settings.aws.region, zones=settings.network.availability_zones, groups=reserved, now=now)


def find(aws: Clients, need: Need, regions: Sequence[str], *, catalog: Catalog, place: Place) -> Findings:
    """Look for capacity.

    Args:
        aws: the account.
        need: what is looked for.
        regions: AWS regions to look in.
        catalog: the instance catalogue, with prices.
        place: the environment.

    Raises:
        RefusedError: the credentials have expired.
    """
    found = [one for region in regions for one in _in_region(aws, region, need, catalog, place)]
    offers = [judge(one, need, place) for one in found if not isinstance(one, Absent)]
    return Findings(need=need, offers=ranked(offers), absent=tuple(one for one in found if isinstance(one, Absent)))


def _in_region(aws: Clients, region: str, need: Need, catalog: Catalog, place: Place) -> list[Offer | Absent]:
    zones = zones_that_offer(aws, region, need)
    held = reservations(aws, region, catalog)
    known = () if isinstance(held, NotKnown) else held
    types = spot_types(need, region, catalog)
    return [
        *_held(held, region, need),
        *_several(block_offerings(aws, region, need, now=place.now)),
        on_demand(aws, region, need, catalog, zones=zones, reserved=known),
        *_several(spot(aws, region, need, catalog, zones=_ours(zones, region, place), types=types, now=place.now)),
        _future(region, need, catalog, zones=zones, now=place.now),
    ]


def _ours(zones: tuple[str, ...] | NotKnown, region: str, place: Place) -> tuple[str, ...] | NotKnown:
    """Of the zones of the environment's region, those of its network, if any: each is an offer of its own."""
    if isinstance(zones, NotKnown) or region != place.region:
        return zones
    return tuple(zone for zone in zones if zone in place.zones) or zones


def _several(found: Sequence[Offer] | Absent) -> Sequence[Offer | Absent]:
    return [found] if isinstance(found, Absent) else found


def _held(held: tuple[Reserved, ...] | NotKnown, region: str, need: Need) -> Sequence[Offer | Absent]:
    if isinstance(held, NotKnown):
        return [Absent(kind="reservation", region=region, why=str(held))]
    fitting = [one for one in held if one.instance_type == need.instance.name]
    return fitting or [Absent(kind="reservation", region=region, why=f"the account has none of {need.instance.name}")]


def _future(
    region: str, need: Need, catalog: Catalog, *, zones: tuple[str, ...] | NotKnown, now: datetime
) -> Offer | Absent:
    starts = future_start(need, now=now)
    why = starts if isinstance(starts, str) else str(zones) if isinstance(zones, NotKnown) else ""
    if isinstance(starts, str) or isinstance(zones, NotKnown) or not zones:
        return Absent(kind="future_reservation", region=region, why=why or f"no zone offers {need.instance.name}")
    return FutureReservation(region=region, zones=zones, starts=starts, usd_per_hour=list_price(need, region, catalog))
