"""Spot instances, by zone: EC2's placement score and the price, now and in the last week."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import Absent, NotKnown, Spot, SpotPrice
from infra.lifecycle.capacity.sources.asking import ask
from infra.lifecycle.capacity.sources.on_demand import list_price
from infra.lifecycle.capacity.sources.quotas import quota_of
from infra.spec.catalog import Catalog

_HISTORY = timedelta(days=7)
_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Names of Linux in the price history; accounts have one or the other."""
_NOT_SCORED = "EC2 gives none for this zone"


def spot(
    aws: Clients,
    region: str,
    need: Need,
    catalog: Catalog,
    *,
    zones: tuple[str, ...] | NotKnown,
    types: tuple[str, ...],
    now: datetime,
) -> tuple[Spot, ...] | Absent:
    """The spot offers of a region, one per zone that offers the instance type.

    Args:
        aws: the account.
        region: AWS region.
        need: the need.
        catalog: the instance catalogue, with prices.
        zones: zones that offer the instance type.
        types: types that may serve the need together.
        now: the time, with its zone.
    """
    scores = ask("ec2:GetSpotPlacementScores", lambda: _scores(aws, region, need.nodes, types))
    named = scores if isinstance(scores, NotKnown) else _by_name(aws, region, scores)
    prices = ask("ec2:DescribeSpotPriceHistory", lambda: _prices(aws, region, types, now))
    if isinstance(zones, NotKnown):
        return Absent(kind="spot", region=region, why=str(zones))
    if not zones:
        return Absent(kind="spot", region=region, why=f"no zone offers {need.instance.name} to this account")
    quota = quota_of(aws, region, need, catalog, market="spot")
    return tuple(
        Spot(
            region=region,
            zone=zone,
            instance_types=types,
            score=named if isinstance(named, NotKnown) else named.get(zone, NotKnown(_NOT_SCORED)),
            price=_price_in(zone, prices),
            quota=quota,
            on_demand_usd_per_hour=list_price(need, region, catalog),
        )
        for zone in zones
    )


def _scores(aws: Clients, region: str, nodes: int, types: Sequence[str]) -> dict[str, int]:
    """Placement scores by the ID of their zone."""
    pages = (
        aws.of("ec2", region)
        .get_paginator("get_spot_placement_scores")
        .paginate(
            InstanceTypes=list(types),
            TargetCapacity=nodes,
            TargetCapacityUnitType="units",
            SingleAvailabilityZone=True,
            RegionNames=[region],
        )
    )
    return {one["AvailabilityZoneId"]: int(one["Score"]) for page in pages for one in page["SpotPlacementScores"]}


def _by_name(aws: Clients, region: str, scores: Mapping[str, int]) -> dict[str, int] | NotKnown:
    """Scores by the name of their zone, which is another one in each account."""
    found = ask(
        "ec2:DescribeAvailabilityZones",
        lambda: aws.of("ec2", region).describe_availability_zones()["AvailabilityZones"],
    )
    if isinstance(found, NotKnown):
        return found
    return {one["ZoneName"]: scores[one["ZoneId"]] for one in found if one["ZoneId"] in scores}


def _prices(aws: Clients, region: str, types: Sequence[str], now: datetime) -> list[Mapping[str, Any]]:
    pages = (
        aws.of("ec2", region)
        .get_paginator("describe_spot_price_history")
        .paginate(InstanceTypes=list(types), ProductDescriptions=list(_PRODUCTS), StartTime=now - _HISTORY)
    )
    return [one for page in pages for one in page["SpotPriceHistory"]]


def _price_in(zone: str, prices: Sequence[Mapping[str, Any]] | NotKnown) -> SpotPrice | NotKnown:
    """The price in a zone. AWS chooses among the types, so the dearest is what the group may cost."""
    if isinstance(prices, NotKnown):
        return prices
    here = sorted((one for one in prices if one["AvailabilityZone"] == zone), key=lambda one: one["Timestamp"])
    if not here:
        return NotKnown(f"no spot price in {zone} in the last week")
    newest = {one["InstanceType"]: float(one["SpotPrice"]) for one in here}
    each = [float(one["SpotPrice"]) for one in here]
    return SpotPrice(now=max(newest.values()), lowest=min(each), highest=max(each))
